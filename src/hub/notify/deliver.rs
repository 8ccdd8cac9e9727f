//! Notices on their way: a bounded queue for each sink, and what sends from it.
//!
//! A receiver that takes nothing costs no more than its queue, and no notice more than [`DEADLINE`]: what waited behind others for so
//! long is old news, and not tried any more.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use time::OffsetDateTime;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Sink;
use super::board::Notice;
use super::letter::{self, Letter};
use crate::backoff::Schedule;
use crate::clock;
use crate::hub::{Hub, chain_of};
use crate::lifetime::Tasks;

/// Notices that wait for one sink.
const QUEUE: usize = 256;
/// One try.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long a notice is of use: from when it was made, wherever it waited since.
const DEADLINE: Duration = Duration::from_hours(1);
const RETRY: Schedule = Schedule {
    floor: Duration::from_millis(500),
    first: Duration::from_secs(1),
    cap: Duration::from_mins(1),
};

/// A notice that waits for a sink.
#[derive(Debug, Clone)]
pub struct Posted {
    letter: Arc<Letter>,
    /// It is of no use any more from then on.
    ends: Instant,
}

impl Posted {
    fn new(letter: Arc<Letter>, made: Instant) -> Self {
        let ends = made + DEADLINE;
        Self { letter, ends }
    }
}

/// What waits for one sink, by its word.
pub type Queue = (&'static str, mpsc::Sender<Posted>);

/// Starts what sends to each sink; gives what is to be filled.
pub fn senders(hub: &Arc<Hub>, tasks: &mut Tasks) -> Vec<Queue> {
    let mut queues = Vec::new();
    for sink in &hub.config.notify.sinks {
        hub.metrics.notices_begin(sink.name());
        let (queue, letters) = mpsc::channel(QUEUE);
        queues.push((sink.name(), queue));
        let (hub, sink) = (hub.clone(), sink.clone());
        tasks.spawn("notices to a sink", |stop| send(hub, sink, letters, stop));
    }
    queues
}

pub(super) fn post(hub: &Hub, queues: &[Queue], notice: Notice) {
    tracing::info!(
        class = notice.class,
        state = ?notice.state,
        clusters = notice.clusters_total,
        "notice"
    );
    let letter = Arc::new(Letter {
        id: clock::id(),
        at: clock::rfc3339(clock::now()),
        hub_id: hub.id.clone(),
        hub_url: hub.config.url.clone(),
        notice,
    });
    let posted = Posted::new(letter, Instant::now());
    for (sink, queue) in queues {
        if queue.try_send(posted.clone()).is_err() {
            dropped(hub, sink, &posted.letter, "its queue is full");
        }
    }
}

fn dropped(hub: &Hub, sink: &'static str, letter: &Letter, why: &str) {
    hub.metrics.noticed(sink, "dropped");
    tracing::error!(
        sink,
        id = letter.id,
        class = letter.notice.class,
        clusters = letter.notice.clusters_total,
        why,
        "a notice was dropped"
    );
}

/// How one try ended badly.
pub(super) enum Failed {
    /// Another may do better.
    Passing(String),
    /// The receiver does not want it.
    ForGood(String),
}

async fn send(
    hub: Arc<Hub>,
    sink: Sink,
    mut letters: mpsc::Receiver<Posted>,
    stop: CancellationToken,
) -> Result<()> {
    let name = sink.name();
    while let Some(Some(posted)) = stop.run_until_cancelled(letters.recv()).await {
        let (own, to, letter) = (&*hub, &sink, &*posted.letter);
        let delivered = deliver(&posted, name, || counted(own, to, letter));
        match stop.run_until_cancelled(delivered).await {
            Some(Ok(())) => hub.metrics.noticed(name, "delivered"),
            Some(Err(why)) => dropped(&hub, name, letter, &why),
            None => dropped(&hub, name, letter, "the hub stops"),
        }
        if hub.replica.as_ref().is_some_and(|own| !own.leads()) {
            // Another replica tries from now on.
            hub.tried.forget();
        }
    }
    letters.close();
    while let Ok(posted) = letters.try_recv() {
        dropped(&hub, name, &posted.letter, "the hub stops");
    }
    Ok(())
}

/// As often as it takes, while the notice is of use; says why it was not taken.
async fn deliver<F: Future<Output = Result<(), Failed>>>(
    posted: &Posted,
    sink: &'static str,
    mut attempt: impl FnMut() -> F,
) -> Result<(), String> {
    let Posted { letter, ends } = posted;
    if Instant::now() >= *ends {
        return Err("it waited for an hour behind others".to_owned());
    }
    let mut failed = 0;
    loop {
        let why = match attempt().await {
            Ok(()) => return Ok(()),
            Err(Failed::ForGood(why)) => return Err(why),
            Err(Failed::Passing(why)) => why,
        };
        let wait = RETRY.full_jitter(failed, clock::unit());
        if Instant::now() + wait >= *ends {
            return Err(format!(
                "nobody took it within an hour of when it was made: {why}"
            ));
        }
        tracing::warn!(
            sink,
            id = letter.id,
            attempt = failed,
            why,
            "a notice waits"
        );
        failed += 1;
        tokio::time::sleep(wait).await;
    }
}

/// A try that counts where another one may follow it.
async fn counted(hub: &Hub, sink: &Sink, letter: &Letter) -> Result<(), Failed> {
    let ended = tried(hub, sink, letter).await;
    if let Err(Failed::Passing(_)) = &ended {
        hub.metrics.noticed(sink.name(), "failed");
    }
    ended
}

/// Once, and how that ended is known from then on.
pub(super) async fn tried(hub: &Hub, sink: &Sink, letter: &Letter) -> Result<(), Failed> {
    let ended = try_once(sink, letter, clock::now()).await;
    let told = match &ended {
        Ok(()) => Ok(()),
        Err(Failed::Passing(why) | Failed::ForGood(why)) => Err(why.clone()),
    };
    hub.tried.went(sink.name(), clock::now(), told);
    ended
}

async fn try_once(sink: &Sink, letter: &Letter, now: OffsetDateTime) -> Result<(), Failed> {
    let (url, ca, body) = match sink {
        Sink::Webhook { url, ca, .. } => (url, ca.as_deref(), letter::body(letter)),
        Sink::Slack { url } => (url, None, letter::slack(letter)),
    };
    let body = body.to_string();
    let client =
        crate::client::http(ca).map_err(|e| Failed::Passing(format!("set up TLS: {e}")))?;
    let mut request = client
        .post(url.expose())
        .timeout(TIMEOUT)
        .header("content-type", "application/json")
        .header("linesman-notice-id", &letter.id);
    if let Sink::Webhook {
        secret: Some(secret),
        ..
    } = sink
    {
        let signature = letter::signature(secret, now.unix_timestamp(), &body);
        request = request.header("linesman-notice-signature", signature);
    }
    // The URL may be a secret: an error must not show it.
    let answer = request.body(body).send().await;
    let answer = answer.map_err(|e| {
        let error = e.without_url();
        Failed::Passing(format!("send it: {}", chain_of(&error)))
    })?;
    let status = answer.status().as_u16();
    match status {
        200..300 => Ok(()),
        408 | 425 | 429 | 500.. => Err(Failed::Passing(format!("the receiver answered {status}"))),
        _ => Err(Failed::ForGood(format!(
            "the receiver refused it with {status}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use super::*;
    use crate::hub::notify::board::{Severity, State};

    fn posted(made: Instant) -> Posted {
        let letter = Letter {
            id: "0197".to_owned(),
            at: "2026-01-01T00:00:00Z".to_owned(),
            hub_id: "h1".to_owned(),
            hub_url: "https://hub.example".to_owned(),
            notice: Notice {
                state: State::Open,
                severity: Severity::Warning,
                class: "AgentLost".to_owned(),
                clusters: Vec::new(),
                clusters_total: 0,
                text: String::new(),
                since: "2025-12-31T23:59:00Z".to_owned(),
                next: None,
            },
        };
        Posted::new(Arc::new(letter), made)
    }

    fn away() -> Result<(), Failed> {
        Err(Failed::Passing("nobody is there".to_owned()))
    }

    /// Each had an hour from its own first try, so that a full queue took days.
    #[tokio::test(start_paused = true)]
    async fn a_full_queue_before_a_dead_receiver_is_empty_an_hour_after_its_last_notice() {
        let made = Instant::now();
        let queue = vec![posted(made); QUEUE];
        for posted in &queue {
            let ended = deliver(posted, "webhook", || ready(away())).await;
            assert!(ended.is_err(), "nobody took it");
        }
        let took = made.elapsed();
        assert!(took <= DEADLINE, "{took:?}");
    }

    /// A receiver that comes back hears of what is news, and at once.
    #[tokio::test(start_paused = true)]
    async fn what_waited_behind_others_for_too_long_is_not_tried() {
        let made = Instant::now();
        let (old, new) = (posted(made), posted(made + DEADLINE / 2));
        tokio::time::advance(DEADLINE).await;
        let mut tries = 0;
        let mut told = Vec::new();
        for posted in [&old, &new] {
            let ended = deliver(posted, "webhook", || {
                tries += 1;
                ready(Ok(()))
            });
            told.push(ended.await);
        }
        let late = Err("it waited for an hour behind others".to_owned());
        assert_eq!((told, tries), (vec![late, Ok(())], 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_notice_that_nobody_takes_is_given_up_an_hour_after_it_was_made() {
        let posted = posted(Instant::now());
        let (waited, left) = (Duration::from_mins(50), Duration::from_mins(10));
        assert_eq!(waited + left, DEADLINE);
        tokio::time::advance(waited).await;
        let began = Instant::now();
        let ended = deliver(&posted, "webhook", || ready(away())).await;
        assert_eq!(
            ended.unwrap_err(),
            "nobody took it within an hour of when it was made: nobody is there"
        );
        let took = began.elapsed();
        assert!(took <= left && took + RETRY.cap >= left, "{took:?}");
    }
}
