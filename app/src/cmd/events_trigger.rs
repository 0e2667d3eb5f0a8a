//! `braid events trigger`: somebody tells an event of his own.

use braid_cluster::view::events::EventSpec;
use clap::Args;

use crate::client::Client;
use crate::exit::Outcome;
use crate::whole::Whole;

#[derive(Args, Debug)]
pub struct Trigger {
    /// One sentence
    #[arg(value_name = "TEXT")]
    text: String,
}

pub fn run(whole: &Whole, trigger: &Trigger) -> Outcome {
    let spec = EventSpec { text: trigger.text.clone() };
    Client::find(whole.dir.as_deref())?.tell("POST", "/events", &spec)
}
