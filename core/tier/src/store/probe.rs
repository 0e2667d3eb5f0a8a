//! What a request met on its way, for the record of operations: the trait of stores tells only how it ended.
//!
//! A caller that wants to know runs the request inside [`watch`]; a store that knows says it with [`note`].

use std::sync::{Arc, Mutex, PoisonError};

use super::failure::{Answer, Failure};

tokio::task_local! {
    static MET: Arc<Mutex<Met>>;
}

/// What a request met.
#[derive(Clone, Debug, Default)]
pub(crate) struct Met {
    /// Times that no answer came.
    pub line_errors: u32,
    /// The last answer that was no success.
    pub answer: Option<Answer>,
}

/// Runs `work`, and tells what it met.
pub(crate) async fn watch<T>(work: impl Future<Output = T>) -> (T, Met) {
    let met = Arc::new(Mutex::new(Met::default()));
    let done = MET.scope(Arc::clone(&met), work).await;
    let met = met.lock().unwrap_or_else(PoisonError::into_inner).clone();
    (done, met)
}

/// Says what happened to the request that is under way, if somebody watches.
pub(super) fn note(failure: &Failure) {
    // Outside of a watched request there is nobody to tell.
    let _ = MET.try_with(|met| {
        let mut met = met.lock().unwrap_or_else(PoisonError::into_inner);
        match &failure.answer {
            Some(answer) => met.answer = Some(answer.clone()),
            None => met.line_errors += 1,
        }
    });
}
