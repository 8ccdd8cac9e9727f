//! Questions to agents that wait for their answer: one a cluster at a time, whoever asks meanwhile shares it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use crate::wire::api::DiagnosisAnswer;
use crate::wire::id::ClusterName;

/// An agent looks for at most 10 s; what has not come by then does not come.
const LIMIT: Duration = Duration::from_secs(15);

/// The registry of questions.
#[derive(Debug, Default)]
pub struct Diagnoses {
    waiting: Mutex<HashMap<ClusterName, Pending>>,
}

type Answer = Option<Arc<DiagnosisAnswer>>;

#[derive(Debug)]
struct Pending {
    id: String,
    until: Instant,
    answer: watch::Sender<Answer>,
}

/// A question that was put, by this caller or by one shortly before.
#[derive(Debug)]
pub struct Asked {
    /// Present where the agent has to be told.
    pub order: Option<String>,
    until: Instant,
    answer: watch::Receiver<Answer>,
}

impl Diagnoses {
    /// `id` is the new question's, should there be none that waits.
    pub fn ask(&self, cluster: &ClusterName, id: String) -> Asked {
        let now = Instant::now();
        let mut waiting = self.lock();
        waiting.retain(|_, pending| pending.until > now);
        if let Some(pending) = waiting.get(cluster) {
            return Asked {
                order: None,
                until: pending.until,
                answer: pending.answer.subscribe(),
            };
        }
        let (sender, answer) = watch::channel(None);
        let until = now + LIMIT;
        let pending = Pending {
            id: id.clone(),
            until,
            answer: sender,
        };
        waiting.insert(cluster.clone(), pending);
        Asked {
            order: Some(id),
            until,
            answer,
        }
    }

    /// Hands an answer to those who wait. False = nobody does, or for another one.
    pub fn answer(&self, cluster: &ClusterName, answer: DiagnosisAnswer) -> bool {
        let mut waiting = self.lock();
        if waiting.get(cluster).is_none_or(|p| p.id != answer.id) {
            return false;
        }
        let Some(pending) = waiting.remove(cluster) else {
            return false;
        };
        pending.answer.send_replace(Some(Arc::new(answer)));
        true
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ClusterName, Pending>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Asked {
    /// None = it did not come in time.
    pub async fn wait(mut self) -> Answer {
        let come = self.answer.wait_for(Option::is_some);
        let come = timeout_at(self.until, come).await.ok()?.ok()?;
        come.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(id: &str) -> DiagnosisAnswer {
        DiagnosisAnswer {
            id: id.to_owned(),
            at: String::new(),
            components: Vec::new(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn those_who_ask_meanwhile_share_one_answer() {
        let all = Diagnoses::default();
        let eu1: ClusterName = "eu1".parse().unwrap();
        let first = all.ask(&eu1, "1".to_owned());
        let second = all.ask(&eu1, "2".to_owned());
        assert_eq!((first.order.as_deref(), &second.order), (Some("1"), &None));
        assert!(!all.answer(&"eu2".parse().unwrap(), answer("1")));
        assert!(all.answer(&eu1, answer("1")));
        let (first, second) = tokio::join!(first.wait(), second.wait());
        assert_eq!(first.unwrap().id, "1");
        assert_eq!(second.unwrap().id, "1");
        assert!(!all.answer(&eu1, answer("1")), "nobody waits any more");
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_without_an_answer_ends_and_makes_room_for_the_next() {
        let all = Diagnoses::default();
        let eu1: ClusterName = "eu1".parse().unwrap();
        assert_eq!(all.ask(&eu1, "1".to_owned()).wait().await, None);
        let next = all.ask(&eu1, "2".to_owned());
        assert_eq!(next.order.as_deref(), Some("2"));
        assert!(all.answer(&eu1, answer("2")));
    }
}
