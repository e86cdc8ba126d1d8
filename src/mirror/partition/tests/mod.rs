//! The machine by tables (`locating`, `flowing`) and against a model of both clusters (`storm`).

mod flowing;
mod kit;
mod locating;
mod model;
mod opening;
mod ops;
mod storm;
mod world;
