//! `braid cluster join-secret`: a new one.

use braid_wire::tls;
use serde_json::json;

use crate::exit::Outcome;
use crate::out;
use crate::whole::Whole;

pub fn run(whole: &Whole) -> Outcome {
    let secret = tls::join_secret()?;
    if whole.json { out::json(&json!({ "join_secret": secret })) } else { out::lines(&[secret]) }
}
