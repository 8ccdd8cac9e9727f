//! Which image a cluster's agent shall run.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use http::HeaderMap;

use super::super::problem::{Problem, Slug};
use super::super::{Caller, UserBody, precondition};
use super::{find, pause};
use crate::clock;
use crate::hub::Hub;
use crate::hub::auth::Role;
use crate::hub::image::{self, Pin};
use crate::wire::api::{AgentImageRequest, AgentImageView};

/// Lets the agent change to another image, or stay with the one that it has.
pub(super) async fn choose(
    State(hub): State<Arc<Hub>>,
    caller: Caller,
    Path(name): Path<String>,
    headers: HeaderMap,
    UserBody(asked): UserBody<AgentImageRequest>,
) -> Result<Json<AgentImageView>, Problem> {
    caller
        .require(&hub, Role::Operator, "cluster.upgrade")
        .await?;
    let what = format!("cluster {name}");
    let chosen = precondition::written((&hub, &caller), &what, || async {
        let mut cluster = find(&hub, &name).await?;
        precondition::matches(&headers, cluster.rev, &what)?;
        let image = asked.image.clone();
        let image = image.map(|image| checked(image, asked.allow_tag));
        let image = image.transpose()?;
        let record = image.as_deref().unwrap_or("stays");
        caller
            .record(&hub, "cluster.upgrade", Some(&name), record)
            .await?;
        let store = &hub.store;
        let Some(wish) = store
            .set_agent_image(cluster.revision(), image.clone(), clock::now())
            .await?
        else {
            return Ok(None);
        };
        (cluster.desired_image, cluster.image_wish) = (image.clone(), wish);
        pause::announce(&hub, &cluster).await?;
        Ok(Some(AgentImageView { image, wish }))
    });
    chosen.await.map(Json)
}

/// An image's name with a digest; with a tag where that is allowed.
fn checked(image: String, allow_tag: bool) -> Result<String, Problem> {
    let shown = crate::hub::cut(&image, 80);
    let Some(pin) = image::pin(&image) else {
        let text = format!("'{shown}' is not an image");
        let next = "give REPOSITORY@sha256:…, such as registry.example.org/linesman-agent@sha256:…";
        return Err(Problem::new(Slug::BadRequest, text, next));
    };
    let allowed = match pin {
        Pin::Digest => true,
        Pin::Tag => allow_tag,
        Pin::Nothing => false,
    };
    if !allowed {
        let text = format!("image '{shown}' has no digest: what it names can change");
        let next =
            "give REPOSITORY@sha256:…; or, where a tag is never moved, allow it (--allow-tag)";
        return Err(Problem::new(Slug::BadRequest, text, next));
    }
    Ok(image)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_named_by_digest_or_by_a_tag_that_is_allowed() {
        let hex = "0123456789abcdef".repeat(4);
        let by_digest = [
            format!("registry.example.org:5000/a/linesman@sha256:{hex}"),
            format!("linesman:1.2@sha256:{hex}"),
        ];
        for image in by_digest {
            assert_eq!(checked(image.clone(), false).ok(), Some(image));
        }
        for tagged in ["r.org:5000/linesman:1.2", "linesman:1"] {
            assert!(checked(tagged.to_owned(), false).is_err(), "{tagged}");
            assert_eq!(
                checked(tagged.to_owned(), true).ok().as_deref(),
                Some(tagged)
            );
        }
        let bad = [
            String::new(),
            "linesman".to_owned(),
            "r.org:5000/linesman".to_owned(),
            "linesman:".to_owned(),
            "a b:1".to_owned(),
            "linesman@sha256:00".to_owned(),
            format!("linesman@sha512:{hex}"),
            format!("@sha256:{hex}"),
            "r.org/:1".to_owned(),
            format!("{}:1", "a".repeat(512)),
        ];
        for image in bad {
            assert!(checked(image.clone(), true).is_err(), "{image}");
        }
    }
}
