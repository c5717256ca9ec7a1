//! A task that takes minutes: begun by one request, looked at by others.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;

/// What a task is at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum TaskState<T> {
    /// It was never begun.
    #[default]
    None,
    /// It is in flight.
    Running,
    /// It is over, with what came out.
    Done(T),
    /// It is over, with why nothing came out.
    Failed(String),
}

/// A task of which one is in flight at a time. Clones are the same one. What came out last is kept.
pub(crate) struct Task<T> {
    state: Arc<Mutex<TaskState<T>>>,
    progress: Progress,
}

/// How far a task is: entries done, and about how many there are.
#[derive(Clone, Default)]
pub(crate) struct Progress(Arc<(AtomicU64, AtomicU64)>);

impl Progress {
    pub(crate) fn note(&self, done: u64, total: u64) {
        self.0.0.store(done, Relaxed);
        self.0.1.store(total, Relaxed);
    }

    /// Done, and about how many there are.
    pub(crate) fn get(&self) -> (u64, u64) {
        (self.0.0.load(Relaxed), self.0.1.load(Relaxed))
    }
}

impl<T> Clone for Task<T> {
    fn clone(&self) -> Self {
        Self { state: Arc::clone(&self.state), progress: self.progress.clone() }
    }
}

impl<T> Default for Task<T> {
    fn default() -> Self {
        Self { state: Arc::default(), progress: Progress::default() }
    }
}

impl<T: Clone + Send + 'static> Task<T> {
    /// What it is at, and how far.
    pub(crate) fn look(&self) -> (TaskState<T>, Progress) {
        (self.state.lock().clone(), self.progress.clone())
    }

    /// Begins it, unless it is in flight.
    pub(crate) fn begin<F>(&self, work: impl FnOnce(Progress) -> F)
    where
        F: Future<Output = Result<T, String>> + Send + 'static,
    {
        {
            let mut state = self.state.lock();
            if matches!(*state, TaskState::Running) {
                return;
            }
            *state = TaskState::Running;
        }
        self.progress.note(0, 0);
        let (work, state) = (tokio::spawn(work(self.progress.clone())), Arc::clone(&self.state));
        tokio::spawn(async move {
            // Also if it panicked: it can be begun again then.
            let result = work.await.unwrap_or_else(|error| Err(error.to_string()));
            *state.lock() = result.map_or_else(TaskState::Failed, TaskState::Done);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn over(task: &Task<u32>) -> TaskState<u32> {
        loop {
            match task.look().0 {
                TaskState::Running => tokio::task::yield_now().await,
                state => return state,
            }
        }
    }

    #[tokio::test]
    async fn one_is_in_flight_at_a_time_and_the_last_result_is_kept() {
        let task = Task::default();
        assert_eq!(task.look().0, TaskState::None);
        let (go_on, wait) = tokio::sync::oneshot::channel::<()>();
        task.begin(|progress| async move {
            progress.note(3, 9);
            let _ = wait.await;
            Ok(1)
        });
        task.begin(|_| async { Ok(2) });
        while task.look().1.get() != (3, 9) {
            tokio::task::yield_now().await;
        }
        assert_eq!(task.look().0, TaskState::Running);
        drop(go_on);
        assert_eq!(over(&task).await, TaskState::Done(1), "the second was not begun");
        task.begin(|_| async { Err("no".into()) });
        assert_eq!(over(&task).await, TaskState::Failed("no".into()));
        assert_eq!(task.look().1.get(), (0, 0));
    }

    #[tokio::test]
    #[allow(clippy::panic, reason = "it is what is tested")]
    async fn a_task_that_panics_has_failed_and_can_be_begun_again() {
        let task = Task::default();
        task.begin(|_| async { panic!("a bug") });
        assert!(matches!(over(&task).await, TaskState::Failed(_)));
        task.begin(|_| async { Ok(5) });
        assert_eq!(over(&task).await, TaskState::Done(5));
    }
}
