//! A list page by page, of which the answers have a limit in bytes: how many objects a page has is the agent's to say, how large they
//! are is said by whoever may make them in a namespace of their own, and a hundred of a megabyte are more than the agent's whole memory.
//!
//! What lists take at once, however many there are: one page of [`LIMIT`]; of each other one [`SMALL`] and what its connection received,
//! some 8 MiB for the dozen kinds that are listed in all namespaces; and what a single object becomes as it is parsed.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use http_body_util::BodyExt as _;
use kube::Client;
use kube::api::{Api, DynamicObject, ListMeta, ListParams, Request};
use kube::client::Body;
use kube::core::Status;
use serde::de::{
    DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout_at};
use tracing::debug;

use super::View;

/// Bytes of one answer, unpacked; of a larger one the rest is not read, and it is asked for in smaller pages. A single object is never
/// more: etcd takes 1.5 MiB as it comes.
const LIMIT: usize = 8 << 20;
/// An answer of more bytes is read on when it is its turn: one after the other.
const SMALL: usize = 256 << 10;
/// Objects of one answer, where nothing else is said.
const PAGE: u32 = 100;

/// A list under way.
pub(in crate::agent) struct Pages {
    kube: Client,
    request: Request,
    params: ListParams,
    /// How long one answer may take.
    call: Duration,
    /// How many objects are asked for next.
    limit: u32,
    /// How many are asked for at most: fewer than before after a page that did not come in time.
    most: u32,
    turn: Arc<Semaphore>,
}

/// A page whose objects were all taken.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::agent) enum Page {
    More,
    /// That was all there was at this resourceVersion.
    Last(String),
}

/// Why a page was not read.
#[derive(Debug, thiserror::Error)]
pub(in crate::agent) enum Unread {
    #[error("it did not come in time")]
    Late(#[from] Elapsed),
    /// One object alone.
    #[error("{0} is larger than {most} MiB", most = LIMIT >> 20)]
    Large(String),
    #[error(transparent)]
    Kube(#[from] kube::Error),
}

impl View {
    /// A list of what the parameters select, in pages of their limit at most; each answer may take so long.
    pub(in crate::agent) fn pages(
        &self,
        api: &Api<DynamicObject>,
        params: ListParams,
        call: Duration,
    ) -> Pages {
        let most = params.limit.unwrap_or(PAGE);
        Pages {
            kube: api.clone().into_client(),
            request: Request::new(api.resource_url()),
            params,
            call,
            limit: most,
            most,
            turn: Arc::clone(&self.1),
        }
    }
}

impl Pages {
    /// Gives each object of the next page to `take`. One that does not come in time, or is too large, is asked for in smaller ones from the
    /// same place on: the token says where, not how many.
    pub(in crate::agent) async fn next(
        &mut self,
        mut take: impl FnMut(DynamicObject),
    ) -> Result<Page, Unread> {
        loop {
            let limit = self.limit;
            self.params.limit = Some(limit);
            let request = self.request.list(&self.params);
            let mut request = request.map_err(kube::Error::BuildRequest)?;
            // As kube's own lists are called in traces.
            request.extensions_mut().insert("list");
            match self.read(request).await {
                Ok(Some(text)) => {
                    let parsed = parse(&text.bytes, &mut take);
                    let meta = parsed.map_err(kube::Error::SerdeError)?;
                    self.limit = as_many(limit, text.bytes.len()).min(self.most);
                    let token = meta.continue_.filter(|token| !token.is_empty());
                    if token.is_none() {
                        return Ok(Page::Last(meta.resource_version.unwrap_or_default()));
                    }
                    self.params.continue_token = token;
                    return Ok(Page::More);
                }
                Ok(None) if limit > 1 => self.limit = (limit / 5).max(1),
                Ok(None) => return Err(self.large().await),
                // A hundred Applications of a megabyte each are more than a slow way brings within a call. Where a few do not come, either,
                // it is not for their number.
                Err(Unread::Late(_)) if limit >= 10 => {
                    self.most = limit / 5;
                    self.limit = self.most;
                }
                Err(unread) => return Err(unread),
            }
            debug!(
                path = self.request.url_path,
                limit, "a page is too much, and is asked for in smaller ones"
            );
        }
    }

    /// A whole answer, or none where it is too large.
    async fn read(&self, request: http::Request<Vec<u8>>) -> Result<Option<Text>, Unread> {
        let mut until = Instant::now() + self.call;
        let sent = self.kube.send(request.map(Body::from));
        let answer = timeout_at(until, sent).await??;
        let (code, mut body) = (answer.status(), answer.into_body());
        let mut text = Text {
            bytes: Vec::new(),
            turn: None,
        };
        while let Some(frame) = timeout_at(until, body.frame()).await? {
            let data = frame?.into_data().unwrap_or_default();
            if text.bytes.len() + data.len() > LIMIT {
                return Ok(None);
            }
            text.bytes.extend_from_slice(&data);
            if text.bytes.len() > SMALL && text.turn.is_none() {
                let waits = Instant::now();
                text.turn = Arc::clone(&self.turn).acquire_owned().await.ok();
                // That others are read first makes no answer late; the call itself ends after `calls::LIMIT`, whatever it waits for.
                until += waits.elapsed();
            }
        }
        if code.is_client_error() || code.is_server_error() {
            return Err(kube::Error::Api(refusal(code, &text.bytes)).into());
        }
        Ok(Some(text))
    }

    /// Which object it is that is too large: its metadata alone is asked for.
    async fn large(&self) -> Unread {
        let mut name = "an object".to_owned();
        if let Ok(request) = self.request.list_metadata(&self.params)
            && let Ok(Some(text)) = self.read(request).await
        {
            let parsed = parse(&text.bytes, &mut |live: DynamicObject| {
                let (namespace, own) = (live.metadata.namespace, live.metadata.name);
                let place = namespace.into_iter().chain(own);
                name = place.collect::<Vec<_>>().join("/");
            });
            if let Err(error) = parsed {
                debug!(%error, "what is too large is not known by name");
            }
        }
        Unread::Large(name)
    }
}

/// What was received of an answer.
struct Text {
    bytes: Vec<u8>,
    /// Of a large one, for as long as it is there.
    turn: Option<OwnedSemaphorePermit>,
}

/// How many objects are asked for after so many that came in so many bytes: as many as make half a page.
fn as_many(limit: u32, bytes: usize) -> u32 {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let many = limit.saturating_mul(LIMIT / 2) / bytes.max(1);
    u32::try_from(many).unwrap_or(u32::MAX).max(1)
}

/// What the API server, or a proxy before it, says in place of a list; as kube reads it.
fn refusal(code: StatusCode, text: &[u8]) -> Box<Status> {
    let status = serde_json::from_slice::<Status>(text);
    let status = status.unwrap_or_else(|_| {
        let said = String::from_utf8_lossy(text);
        Status::failure(said.trim(), "Failed to parse error data").with_code(code.as_u16())
    });
    status.boxed()
}

/// Gives each object of a list to `take` before the next one is parsed: a few bytes of JSON can become many times as many.
fn parse(text: &[u8], take: &mut impl FnMut(DynamicObject)) -> serde_json::Result<ListMeta> {
    let mut text = serde_json::Deserializer::from_slice(text);
    let meta = List(take).deserialize(&mut text)?;
    text.end()?;
    Ok(meta)
}

struct List<'a, F>(&'a mut F);

impl<'de, F: FnMut(DynamicObject)> DeserializeSeed<'de> for List<'_, F> {
    type Value = ListMeta;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<ListMeta, D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de, F: FnMut(DynamicObject)> Visitor<'de> for List<'_, F> {
    type Value = ListMeta;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of objects")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut list: A) -> Result<ListMeta, A::Error> {
        let take = self.0;
        let (mut meta, mut listed) = (ListMeta::default(), false);
        while let Some(field) = list.next_key::<String>()? {
            match field.as_str() {
                "metadata" => meta = list.next_value()?,
                "items" => {
                    list.next_value_seed(Items(&mut *take))?;
                    listed = true;
                }
                _ => {
                    list.next_value::<IgnoredAny>()?;
                }
            }
        }
        // An answer that is no list does not say that there is nothing.
        if listed {
            Ok(meta)
        } else {
            Err(A::Error::missing_field("items"))
        }
    }
}

struct Items<'a, F>(&'a mut F);

impl<'de, F: FnMut(DynamicObject)> DeserializeSeed<'de> for Items<'_, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de, F: FnMut(DynamicObject)> Visitor<'de> for Items<'_, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the objects of a list, or null")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<(), A::Error> {
        let take = self.0;
        while let Some(live) = all.next_element()? {
            take(live);
        }
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests;
