//! Names of container images: `[HOST[:PORT]/]REPOSITORY[:TAG][@sha256:…]`.

const LONGEST: usize = 512;

/// What the name says of the content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pin {
    /// One content, for ever.
    Digest,
    /// Whatever the tag stands for now.
    Tag,
    /// Whatever `latest` stands for now.
    Nothing,
}

/// None = no image has such a name.
pub fn pin(image: &str) -> Option<Pin> {
    let (name, digest) = match image.split_once('@') {
        Some((name, digest)) => (name, Some(digest)),
        None => (image, None),
    };
    let last = name.rsplit('/').next().unwrap_or_default();
    let (repository, tag) = match last.split_once(':') {
        Some((repository, tag)) => (repository, Some(tag)),
        None => (last, None),
    };
    let letter = |b: u8| b.is_ascii_alphanumeric() || b"-_./:".contains(&b);
    let hex = |digest: &str| {
        let hex = digest.strip_prefix("sha256:").unwrap_or_default();
        hex.len() == 64 && hex.bytes().all(|b| b"0123456789abcdef".contains(&b))
    };
    let well_formed = image.len() <= LONGEST
        && name.bytes().all(letter)
        && !repository.is_empty()
        && tag.is_none_or(|tag| !tag.is_empty() && !tag.contains(':'))
        && digest.is_none_or(hex);
    let pin = match (digest, tag) {
        (Some(_), _) => Pin::Digest,
        (None, Some(_)) => Pin::Tag,
        (None, None) => Pin::Nothing,
    };
    well_formed.then_some(pin)
}

/// The registry that the name itself says. Without one, a node has the image already or asks its own default registry.
pub fn registry(image: &str) -> Option<&str> {
    let (host, _) = image.split_once('/')?;
    (host.contains(['.', ':']) || host == "localhost").then_some(host)
}

/// What to say of an agent's image that clusters hardly find; None = it names its registry.
pub fn without_registry(image: &str) -> Option<String> {
    registry(image).is_none().then(|| {
        format!(
            "the agent's image {image} names no registry: a cluster runs it only where its nodes have it already"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_names_its_content_and_its_registry() {
        let hex = "0123456789abcdef".repeat(4);
        let pinned = format!("registry.example.org:5000/a/linesman@sha256:{hex}");
        for (image, expected, host) in [
            (
                pinned.as_str(),
                Some(Pin::Digest),
                Some("registry.example.org:5000"),
            ),
            ("linesman-agent:0.1.0", Some(Pin::Tag), None),
            ("library/linesman", Some(Pin::Nothing), None),
            ("localhost/linesman:1", Some(Pin::Tag), Some("localhost")),
            ("r.org/linesman", Some(Pin::Nothing), Some("r.org")),
            (":::bad", None, None),
            ("r.org/:1", None, Some("r.org")),
            ("linesman:", None, None),
            ("a b:1", None, None),
            ("linesman@sha256:00", None, None),
            ("", None, None),
        ] {
            assert_eq!((pin(image), registry(image)), (expected, host), "{image}");
        }
        assert_eq!(without_registry("r.org/a:1"), None);
        assert!(without_registry("a:1").is_some());
    }
}
