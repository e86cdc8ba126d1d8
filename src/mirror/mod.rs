//! The mirror: flows from one cluster to another (being built). [`settings`] is what it is told.

pub mod settings;
