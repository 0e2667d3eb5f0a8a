//! Is a store fit for use? Asked before it is added: one byte is written, read and removed.

use std::sync::Arc;
use std::time::Duration;

use braid_base::ids::{Guid, HostId};
use braid_base::store::{Azure, Place, S3, StoreSpec};
use braid_base::{Error, ErrorKind, Result};
use bytes::Bytes;
use tokio::time::{Instant, timeout};

use crate::blob::keys;
use crate::store::{Store, open};

/// How long one step may take.
const STEP_TIMEOUT: Duration = Duration::from_secs(30);
/// The byte that is written.
const BYTE: Bytes = Bytes::from_static(b"B");

/// A step that went well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// What was done, for people.
    pub what: String,
    /// How long it took.
    pub took: Duration,
}

/// Tries the store of `spec`: PUT of an object of one byte, GET of it, DELETE of an object that does not exist, DELETE
/// of the first. Each is tried once.
///
/// Errors: those of the step that failed; the message names the step and the likely cause. `Corrupt`: other bytes came
/// back than went there.
pub async fn verify(spec: &StoreSpec, cluster: Guid, host: HostId) -> Result<Vec<Step>> {
    let store = open(spec)?;
    let (written, missing) = (keys::verify(cluster, host, "rw"), keys::verify(cluster, host, "remove"));
    let mut steps = Vec::new();
    let put = step(&mut steps, format!("PUT of one byte as {written}"), store.put(&written, vec![BYTE]));
    if let Err(error) = put.await {
        return Err(guess(spec, error).await);
    }
    let got = step(&mut steps, format!("GET of {written}"), store.get(&written, None)).await?;
    if got != BYTE {
        let message = format!("step 2, GET of {written}: one byte was written, {} others came back", got.len());
        return Err(Error::new(ErrorKind::Corrupt, message));
    }
    step(&mut steps, format!("DELETE of {missing}, which does not exist"), store.delete(&missing)).await?;
    step(&mut steps, format!("DELETE of {written}"), store.delete(&written)).await?;
    Ok(steps)
}

async fn step<T>(steps: &mut Vec<Step>, what: String, work: impl Future<Output = Result<T>>) -> Result<T> {
    let began = Instant::now();
    let done = timeout(STEP_TIMEOUT, work).await.unwrap_or_else(|_| {
        let message = format!("no answer within {} s: is the store overloaded?", STEP_TIMEOUT.as_secs());
        Err(Error::new(ErrorKind::TimedOut, message))
    });
    let done = done.map_err(|error| error.within(format!("step {}, {what}", steps.len() + 1)))?;
    steps.push(Step { what, took: began.elapsed() });
    Ok(done)
}

/// Is the bucket there when its name is spelled in lower case, as almost all names are?
async fn guess(spec: &StoreSpec, error: Error) -> Error {
    let mut other = spec.clone();
    let name = match &mut other.place {
        Place::S3(S3 { bucket, .. }) => bucket,
        Place::Azure(Azure { container, .. }) => container,
        Place::Dir { .. } => return error,
    };
    let lower = name.to_lowercase();
    let wrong = matches!(error.kind(), ErrorKind::NotFound | ErrorKind::AccessDenied | ErrorKind::Refused);
    if !wrong || lower == *name {
        return error;
    }
    name.clone_from(&lower);
    let Ok(store) = open(&other) else { return error };
    if !can_list(&store).await {
        return error;
    }
    Error::new(error.kind(), format!("{}; there is one named '{lower}': is that the one?", error.message()))
}

async fn can_list(store: &Arc<dyn Store>) -> bool {
    timeout(STEP_TIMEOUT, store.list("", None)).await.is_ok_and(|listed| listed.is_ok())
}
