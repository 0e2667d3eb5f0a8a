//! `braid bucket verify`: whether the objects are as they were written.

use clap::Args;
use serde_json::json;

use super::bucket::{self, Bucket, damage};
use crate::exit::{FAILURE, Failure, Outcome};
use crate::measure::size;
use crate::out;
use crate::whole::Whole;

#[derive(Args, Debug)]
#[command(after_help = bucket::HELP)]
pub struct Verify {
    #[command(flatten)]
    bucket: Bucket,
}

pub fn run(whole: &Whole, verify: &Verify) -> Outcome {
    let mut damages = Vec::new();
    let mut written = Ok(());
    let verified = bucket::read(&verify.bucket, async |salvage| {
        let tell = |found: braid_tier::salvage::Damage| {
            // People see damage when it is found: a bucket takes long.
            if whole.json {
                damages.push(damage(&found));
            } else if written.is_ok() {
                written = out::lines(&[format!("damaged: {found}")]);
            }
            Ok(())
        };
        salvage.verify(tell).await
    })?;
    written?;
    let failed = |message: String| Err(Failure { code: FAILURE, message });
    if whole.json {
        out::json(&json!({
            "objects": verified.objects,
            "bytes": verified.bytes,
            "damaged": verified.damaged,
            "damages": damages,
        }))?;
        return if verified.damaged == 0 { Ok(()) } else { failed(String::new()) };
    }
    match verified {
        all if all.damaged > 0 => failed(format!("{} of {} objects are damaged", all.damaged, all.objects)),
        all if all.objects == 0 => out::lines(&["no objects with data lie there: is the prefix right?".to_owned()]),
        all => out::lines(&[format!("{} objects, {}: all sound", all.objects, size(all.bytes))]),
    }
}
