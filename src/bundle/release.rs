//! Where a project publishes a version's install manifest, by what it is verified, and which Kubernetes it needs.

use std::fmt;
use std::str::FromStr;

use crate::keys::sha256_hex;
use crate::wire::api::{BundleView, EngineKind};

/// SHA-256 of Argo CD's manifests at its tags, for it publishes none itself: of `manifests/core-install.yaml` and of
/// `manifests/install.yaml`. Taken from the module `github.com/argoproj/argo-cd/v3` of each version, which the Go checksum
/// database vouches for.
const ARGOCD_MANIFESTS: [(&str, &str, &str); 6] = [
    (
        "3.2.6",
        "584769c256b096fabf16173308c8d95dd4c0042d89676638ae22624890a39d44",
        "584d53e4155689b7ac7154f6e89206af8e9eae1db2e42784ca7d01bb122ceba8",
    ),
    (
        "3.2.12",
        "8c8107eb77dc535f1a42cf54203d7052400fb95c8ec27d04d1fc7f2d5ba559ef",
        "1097a8e8cdc1ed00831ec35338584ecaa2f79d29868fc0c2c5be61cce96253b8",
    ),
    (
        "3.3.19",
        "ad184b6813789956d56d616da02af7861b9bb053a9a4d0a69da5e21fbd03bfdb",
        "383632a950f78e58b2354ad4dbe519d5d307b13d8b90562a0fc1352f50faf668",
    ),
    (
        "3.4.13",
        "b39b88734965fe893ef914fa910a6410109c176b494244c0798b83eb9d7ef9a4",
        "2904fe432572425803e6519d59ded69f79ce0b1da38c4952c5989b83051bb445",
    ),
    (
        "3.5.7",
        "a7ab521e55a511af9274294afafc87cddf9621a34ac255b4b20cd31989e1ecbc",
        "09bfbb9041b4a8503c6e4fa22cf41c403fa62be17526de353648a4551f5beb77",
    ),
    (
        "3.6.1",
        "0b38189d6e1fd76ef5c3db10355026c48a02020d82bf21a1a1b5ab16dffe4f3c",
        "7be23ca7d9ca3d3074dee8332f1ca92a933b990cee7c9cf22cf3843ee8c2913e",
    ),
];
/// Where the tags are that these manifests are at.
const ARGOCD_REPOSITORY: &str = "https://github.com/argoproj/argo-cd";
const CORE: &str = "core-install.yaml";
const FULL: &str = "install.yaml";

/// The lowest Kubernetes minor that a minor of an engine is made for, as far as its project says: `cmd/flux/check.go`
/// of Flux, `tested-kubernetes-versions.md` of Argo CD. Minors between two rows need at least what the lower one does.
const FLUX_KUBERNETES: [(Minor, u32); 5] = [
    ((2, 0), 24),
    ((2, 2), 26),
    ((2, 3), 28),
    ((2, 6), 31),
    ((2, 9), 33),
];
const ARGOCD_KUBERNETES: [(Minor, u32); 2] = [((3, 0), 29), ((3, 1), 31)];

type Minor = (u32, u32);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReleaseError {
    #[error("'{0}' is not a version; give one like 2.9.4")]
    Version(String),
    #[error("'{0}' is not the address of a mirror; give https://HOST[:PORT][/PATH]")]
    Base(String),
    #[error("Flux has one manifest for all of it; --components chooses the controllers")]
    OneManifest,
    #[error("the list of checksums has none of {0}")]
    Unlisted(String),
    #[error("{file} has the SHA-256 {found}, and {expected} is expected of it ({by})")]
    Altered {
        file: String,
        found: String,
        expected: String,
        by: VerifiedBy,
    },
    #[error(
        "what was fetched from {file} has the SHA-256 {found}; its project publishes none, and this version is not in our list"
    )]
    Unverified { file: String, found: String },
}

/// A version as a project tags it, without its `v`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version(String);

impl FromStr for Version {
    type Err = ReleaseError;

    fn from_str(text: &str) -> Result<Self, ReleaseError> {
        let plain = text.strip_prefix('v').unwrap_or(text);
        let mut core = plain
            .split(['-', '+'])
            .next()
            .unwrap_or_default()
            .split('.');
        let number = |part: Option<&str>| {
            part.is_some_and(|p| {
                (1..=5).contains(&p.len()) && p.bytes().all(|b| b.is_ascii_digit())
            })
        };
        let shaped = number(core.next()) && number(core.next()) && number(core.next());
        let rest = plain
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b".-+".contains(&b));
        if shaped && core.next().is_none() && rest && plain.len() <= 40 {
            Ok(Self(plain.to_owned()))
        } else {
            Err(ReleaseError::Version(text.chars().take(60).collect()))
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The bundles of an engine, the newest version first; of one version, in the order in which they came.
pub fn newest_first(all: Vec<BundleView>, engine: EngineKind) -> Vec<BundleView> {
    let mut own: Vec<_> = all.into_iter().filter(|b| b.engine == engine).collect();
    own.sort_by(|a, b| rank(&b.version).cmp(&rank(&a.version)));
    own
}

/// How new a version is; none = it is no version, and older than all that are.
fn rank(version: &str) -> Option<Rank<'_>> {
    let version = version.split('+').next().unwrap_or_default();
    let (core, before) = match version.split_once('-') {
        Some((core, before)) => (core, Some(before)),
        None => (version, None),
    };
    let mut numbers = core.split('.').map(|number| number.parse::<u64>().ok());
    let core = [numbers.next()??, numbers.next()??, numbers.next()??];
    if numbers.next().is_some() {
        return None;
    }
    Some(Rank {
        release: before.is_none(),
        core,
        before: before.map_or_else(Vec::new, |before| before.split('.').map(part).collect()),
    })
}

fn part(text: &str) -> Part<'_> {
    text.parse::<u64>().map_or(Part::Word(text), Part::Number)
}

/// Precedence as Semantic Versioning 2.0.0 has it (§11), but that a pre-release is behind every release: nobody gets one who did
/// not ask for it.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Rank<'a> {
    release: bool,
    core: [u64; 3],
    before: Vec<Part<'a>>,
}

/// Numbers come before words.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Part<'a> {
    Number(u64),
    Word(&'a str),
}

/// What vouches for a manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VerifiedBy {
    /// The project's own list, published beside the manifest.
    Checksums,
    /// A list that a mirror has beside the manifest: that nothing was cut or mixed up, by the mirror's own word.
    Mirror,
    /// The list above.
    OurList,
    /// Whoever gave the digest.
    Given,
}

impl VerifiedBy {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Checksums => "the release's checksums",
            Self::Mirror => "checksums that the mirror itself gave",
            Self::OurList => "the list in this program",
            Self::Given => "--sha256",
        }
    }
}

impl fmt::Display for VerifiedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One version's published files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Release {
    pub engine: EngineKind,
    pub version: Version,
    pub manifest: String,
    /// The list that holds the manifest's SHA-256, where the project publishes one.
    pub checksums: Option<String>,
    /// Whether both come from a mirror.
    pub mirrored: bool,
}

impl Release {
    /// Below `base`, which has the files where the project has them; none = the project itself.
    pub fn new(
        engine: EngineKind,
        version: Version,
        base: Option<&str>,
    ) -> Result<Self, ReleaseError> {
        let own = match engine {
            EngineKind::Flux => "https://github.com/fluxcd/flux2/releases/download",
            EngineKind::Argocd => "https://raw.githubusercontent.com/argoproj/argo-cd",
        };
        let mirrored = base.is_some();
        let base = base.map_or(Ok(own), mirror)?;
        Ok(match engine {
            EngineKind::Flux => Self {
                manifest: format!("{base}/v{version}/install.yaml"),
                checksums: Some(format!("{base}/v{version}/flux_{version}_checksums.txt")),
                engine,
                version,
                mirrored,
            },
            EngineKind::Argocd => Self {
                manifest: format!("{base}/v{version}/manifests/{CORE}"),
                checksums: None,
                engine,
                version,
                mirrored,
            },
        })
    }

    /// Argo CD with its API server and web interface, instead of the core.
    pub fn full(mut self) -> Result<Self, ReleaseError> {
        let core = self.manifest.strip_suffix(CORE);
        self.manifest = format!("{}{FULL}", core.ok_or(ReleaseError::OneManifest)?);
        Ok(self)
    }

    /// The commands that print the SHA-256 of Argo CD's manifest from its tag: another way to it than the one by which it is fetched.
    pub fn at_its_tag(&self) -> String {
        let file = self.manifest.rsplit('/').next().unwrap_or_default();
        format!(
            "git clone --depth 1 --branch v{} {ARGOCD_REPOSITORY} && sha256sum argo-cd/manifests/{file}",
            self.version
        )
    }

    /// What the manifest has to have, by the digest that somebody `given`, the project's `checksums`, or our list.
    pub fn expected(
        &self,
        given: Option<&str>,
        checksums: Option<&str>,
    ) -> Result<Option<(String, VerifiedBy)>, ReleaseError> {
        if let Some(given) = given {
            return Ok(Some((given.to_ascii_lowercase(), VerifiedBy::Given)));
        }
        let file = self.manifest.rsplit('/').next().unwrap_or_default();
        if let Some(list) = checksums {
            let found = listed(list, file);
            let found = found.ok_or_else(|| ReleaseError::Unlisted(file.to_owned()))?;
            let by = if self.mirrored {
                VerifiedBy::Mirror
            } else {
                VerifiedBy::Checksums
            };
            return Ok(Some((found, by)));
        }
        let ours = ARGOCD_MANIFESTS
            .iter()
            .find(|(version, ..)| self.engine == EngineKind::Argocd && *version == self.version.0);
        Ok(ours.map(|(_, core, full)| {
            let digest = if file == CORE { core } else { full };
            ((*digest).to_owned(), VerifiedBy::OurList)
        }))
    }
}

/// The bytes are what they should be; what nobody vouches for is refused with what it has.
pub fn verify(
    file: &str,
    bytes: &[u8],
    expected: Option<(String, VerifiedBy)>,
) -> Result<VerifiedBy, ReleaseError> {
    let found = sha256_hex(bytes);
    let file = file.to_owned();
    match expected {
        None => Err(ReleaseError::Unverified { file, found }),
        Some((expected, by)) if expected != found => Err(ReleaseError::Altered {
            file,
            found,
            expected,
            by,
        }),
        Some((_, by)) => Ok(by),
    }
}

fn mirror(base: &str) -> Result<&str, ReleaseError> {
    let plain = base.trim_end_matches('/');
    let rest = plain.strip_prefix("https://").unwrap_or_default();
    let shaped = !rest.is_empty()
        && !rest.starts_with('/')
        && rest
            .bytes()
            .all(|b| b.is_ascii_graphic() && !b"?#@\\\"'<>".contains(&b));
    if shaped {
        Ok(plain)
    } else {
        // What stands before an `@` may be a password.
        let shown = base.rsplit_once('@').map_or(base, |(_, place)| place);
        Err(ReleaseError::Base(shown.chars().take(200).collect()))
    }
}

/// The digest of a file in the form of `sha256sum`: 64 hex digits, blanks, an optional `*`, the name.
fn listed(list: &str, file: &str) -> Option<String> {
    list.lines().find_map(|line| {
        let (digest, name) = line.trim().split_once(char::is_whitespace)?;
        let name = name.trim_start().trim_start_matches('*');
        (name == file && is_sha256(digest)).then(|| digest.to_ascii_lowercase())
    })
}

pub fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit())
}

/// The lowest Kubernetes minor of version 1 for an engine's version; none = not known.
pub fn kubernetes(engine: EngineKind, version: &str) -> Option<u32> {
    let mut parts = version.split('.').map(str::parse::<u32>);
    let minor: Minor = (parts.next()?.ok()?, parts.next()?.ok()?);
    let rows: &[(Minor, u32)] = match engine {
        EngineKind::Flux => &FLUX_KUBERNETES,
        EngineKind::Argocd => &ARGOCD_KUBERNETES,
    };
    let row = rows.iter().rfind(|(from, _)| *from <= minor);
    row.filter(|(from, _)| from.0 == minor.0).map(|(_, of)| *of)
}

#[cfg(test)]
mod tests;
