//! Watches that last as long as the agent, and how late they hear. Two ends of a watch come without a word: its connection dies
//! (a node that is gone closes none), and the API server's store is put back from a backup, after which a watch that goes on in the
//! numbers of before hears nothing until they come again. So each is begun anew once in a while, with a list of what there is. A
//! request of those that hangs takes its whole time ([`super::LIMIT`]), and what it would have told of is heard that much later.

use std::fmt::Debug;
use std::future::ready;
use std::time::Duration;

use futures_util::{Stream, StreamExt as _, stream};
use kube::api::Api;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{Config, Error, Event, watcher as watch_objects};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout_at};

/// So many seconds the server is asked to let a watch of many objects last. One that says nothing for 5 s more hangs on a connection that
/// is dead, and the next one goes on where it stopped (`next_with_idle_timeout` of kube-runtime): with its usual 290 s, what people
/// change would be heard five minutes late. A time limit for the connection itself would do without the server's word, and end each
/// watch of a server that sends no bookmarks as an error, after which kube-runtime waits for up to 30 s.
const LASTS: u32 = 60;
/// Many objects are listed anew this often.
const SELDOM: Duration = Duration::from_mins(5);
/// What the owner says is listed anew this often. A list and a watch are two requests, where a watch that goes on is one.
const OFTEN: Duration = Duration::from_mins(1);
/// The agent's own objects are listed anew this often.
const RARELY: Duration = Duration::from_secs(150);

/// The objects of `api` that `only` selects, as they are and as they become: a minute late where a connection died, and five where the
/// store was put back; a minute more where the next request hangs.
pub(in crate::agent) fn watched<K>(
    api: Api<K>,
    only: Config,
) -> impl Stream<Item = Result<Event<K>, Error>> + Send
where
    K: kube::Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    renewed(api, only.timeout(LASTS), SELDOM)
}

/// One object of the owner's, as it is and as it becomes: a minute late, whichever of the two it was, and two where the list hangs.
pub(in crate::agent) fn named<K>(
    api: Api<K>,
    name: &str,
) -> impl Stream<Item = Result<Event<K>, Error>> + Send + use<K>
where
    K: kube::Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    renewed(api, one(name), OFTEN)
}

fn one(name: &str) -> Config {
    Config::default().fields(&format!("metadata.name={name}"))
}

/// One object of the agent's own, each time that it is another than before; none = it is not there. Two and a half minutes late, and
/// three and a half where the list hangs.
pub(in crate::agent) fn object<K>(
    api: Api<K>,
    name: &str,
) -> impl Stream<Item = Result<Option<K>, Error>> + Send + use<K>
where
    K: kube::Resource + Clone + DeserializeOwned + Debug + PartialEq + Send + 'static,
{
    let (mut listed, mut known) = (None, None);
    renewed(api, one(name), RARELY).filter_map(move |event| {
        let now = match event {
            Ok(Event::Init) => {
                listed = None;
                None
            }
            Ok(Event::InitApply(object)) => {
                listed = Some(object);
                None
            }
            Ok(Event::InitDone) => Some(Ok(listed.take())),
            Ok(Event::Apply(object)) => Some(Ok(Some(object))),
            Ok(Event::Delete(_)) => Some(Ok(None)),
            Err(error) => Some(Err(error)),
        };
        // Not by its resourceVersion: a store that was put back gives the same ones once more.
        ready(now.filter(|now| match now {
            Ok(object) => known.replace(object.clone()).as_ref() != Some(object),
            Err(_) => true,
        }))
    })
}

/// What `only` selects, begun anew so long after the last list was whole, whatever was heard since.
fn renewed<K>(
    api: Api<K>,
    only: Config,
    anew: Duration,
) -> impl Stream<Item = Result<Event<K>, Error>> + Send
where
    K: kube::Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let begin = move || {
        watch_objects(api.clone(), only.clone())
            .default_backoff()
            .boxed()
    };
    let first = begin();
    // A list that is not answered ends by the deadline of its call, and is tried again.
    let place = (begin, first, None::<Instant>);
    stream::unfold(place, move |(begin, mut events, mut until)| async move {
        loop {
            let event = match until {
                Some(until) => timeout_at(until, events.next()).await,
                None => Ok(events.next().await),
            };
            let Ok(event) = event else {
                (events, until) = (begin(), None);
                continue;
            };
            let event = event?;
            if matches!(event, Ok(Event::InitDone)) {
                until = Some(Instant::now() + anew);
            }
            return Some((event, (begin, events, until)));
        }
    })
}

#[cfg(test)]
mod tests;
