//! Faults under load: processes killed, stopped, suspended and doubled, brokers down, connections cut.
//!
//! Every test ends with the same question, put to Java's own consumer: does the target hold each source record once,
//! in order? Progress in between is read off the sizes of the brokers' segment files, so that watching costs the
//! brokers nothing. Start reading at [`bench`].

mod bench;
mod brokers;
mod chaos;
mod company;
mod kills;
mod lag;
mod lossy;
mod proxy;
mod stops;
