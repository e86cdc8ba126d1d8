//! The machine by tables (`locating`, `flowing`, `deciding`) and against a model of both clusters (`storm`).

mod deciding;
mod flowing;
mod kit;
mod locating;
mod model;
mod nameless;
mod opening;
mod ops;
mod storm;
mod world;
