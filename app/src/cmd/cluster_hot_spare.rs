//! `braid cluster hot-spare`: failure domains whose room is kept free.

use braid_cluster::view::{SettingsChange, SettingsView};
use clap::Args;

use crate::client::Client;
use crate::exit::Outcome;
use crate::out;
use crate::whole::Whole;

#[derive(Args, Debug)]
pub struct HotSpare {
    /// How many from now on; without it, how many there are is shown
    count: Option<u16>,
    /// Also if more is stored already than has room then
    #[arg(long, requires = "count")]
    skip_resource_validation: bool,
}

pub fn run(whole: &Whole, spare: &HotSpare) -> Outcome {
    let client = Client::find(whole.dir.as_deref())?;
    let settings: SettingsView = match spare.count {
        None => client.get("/settings")?,
        Some(_) => {
            let skip_resource_validation = spare.skip_resource_validation;
            let change =
                SettingsChange { hot_spares: spare.count, skip_resource_validation, ..SettingsChange::default() };
            client.send("PATCH", "/settings", &change)?
        }
    };
    if whole.json {
        return out::json(&settings);
    }
    out::lines(&[format!("the room of {} failure domains is kept free", settings.hot_spares)])
}
