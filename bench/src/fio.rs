//! Data workloads by fio, so that the figures can be compared with anybody's.

use crate::Outcome;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};

/// What one run of fio moved.
#[derive(Debug, Clone, Copy)]
pub struct Moved {
    /// Reads and writes.
    pub operations: f64,
    /// Bytes of both.
    pub bytes: f64,
    /// Seconds from the first operation to the last, with the final fsync.
    pub seconds: f64,
}

/// Runs one job group in `dir`. Jobs of the same `name` use the same files.
pub fn run(dir: &Path, name: &str, options: &[String]) -> Outcome<Moved> {
    let output = Command::new("fio")
        .arg(format!("--name={name}"))
        .arg(format!("--directory={}", dir.display()))
        .args(["--output-format=json", "--group_reporting", "--fallocate=none", "--invalidate=0", "--randrepeat=1"])
        .args(options)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("fio does not start: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        return Err(format!("fio {name} failed: {} {text}", String::from_utf8_lossy(&output.stderr)));
    }
    // Warnings may stand before the JSON.
    let json = text.find('{').map_or("", |at| &text[at..]);
    let value: Value = serde_json::from_str(json).map_err(|error| format!("fio {name}: no JSON: {error}"))?;
    moved(&value["jobs"][0]).ok_or_else(|| format!("fio {name}: no figures in its output"))
}

fn moved(job: &Value) -> Option<Moved> {
    let mut sum = Moved { operations: 0.0, bytes: 0.0, seconds: 0.0 };
    for side in ["read", "write"] {
        sum.operations += job[side]["total_ios"].as_f64()?;
        sum.bytes += job[side]["io_bytes"].as_f64()?;
        sum.seconds = sum.seconds.max(job[side]["runtime"].as_f64()? / 1000.0);
    }
    (sum.seconds > 0.0).then_some(sum)
}

#[cfg(test)]
mod tests {
    use super::moved;
    use serde_json::json;

    #[test]
    fn both_directions_are_added() {
        let job = json!({
            "read": {"total_ios": 0, "io_bytes": 0, "runtime": 0},
            "write": {"total_ios": 10, "io_bytes": 40_960, "runtime": 500},
        });
        let moved = moved(&job).expect("the fields are there");
        assert_eq!((moved.operations, moved.bytes, moved.seconds), (10.0, 40_960.0, 0.5));
        assert!(super::moved(&json!({})).is_none());
    }
}
