//! Tests across modules and against real brokers; one binary so that it links once.
<<<<<<< HEAD

mod real;
mod tidy;
=======
>>>>>>> config
