//! The client against a model of its servers. One program: the model is compiled once.

mod behind;
mod lasting;
mod model;
mod moving;
mod objects;
mod reading;
mod scrubbing;
mod session;
mod tier;
