//! The state of a cluster in one word, and the sentences that explain it.

use crate::facts::Protection;
use crate::view::{DriveView, PartitionView, State};

/// The state of a cluster with `protection`, judged by its drives and partitions, and one sentence per problem.
pub fn judge(protection: Protection, drives: &[DriveView], partitions: &[PartitionView]) -> (State, Vec<String>) {
    let lost: Vec<&DriveView> = drives.iter().filter(|drive| drive.is_lost()).collect();
    let silent: Vec<&PartitionView> = partitions.iter().filter(|partition| !partition.is_serving()).collect();
    // A drive that lied or failed here and there: what it held there is rebuilt from the others with each read.
    let erring = drives.iter().filter(|drive| !drive.is_lost() && drive.errors > 0);
    let mut problems: Vec<String> = lost.iter().map(|drive| lost_sentence(drive)).collect();
    problems.extend(erring.clone().map(erring_sentence));
    problems.extend(silent.iter().map(|partition| silent_sentence(partition)));
    let parity = usize::from(protection.parity);
    if lost.len() > parity {
        let count = lost.len();
        problems.push(format!(
            "{count} drives are lost and {protection} survives {parity}: bring back at least {}",
            count - parity
        ));
    }
    let state = match (lost.len(), silent.len()) {
        (0, 0) if erring.count() == 0 => State::Ok,
        (lost, 0) if lost <= parity => State::Degraded,
        _ => State::Unavailable,
    };
    (state, problems)
}

fn erring_sentence(drive: &DriveView) -> String {
    let what = drive.problem.clone().unwrap_or_else(|| format!("{} errors since start", drive.errors));
    format!("drive d{} ({}): {what}: replace it if they go on", drive.id, drive.path)
}

fn silent_sentence(partition: &PartitionView) -> String {
    let why = partition.problem.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
    format!("partition p{} is {}{why}", partition.id, partition.state)
}

fn lost_sentence(drive: &DriveView) -> String {
    let why = drive.problem.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
    format!("drive d{} ({}) is {}{why}", drive.id, drive.path, drive.state)
}
