//! One engine version's install objects in normal form, named by the SHA-256 of it.

use std::io::Read as _;

use serde::Serialize;
use serde_json::Value;
use zstd::bulk::Compressor;
use zstd::zstd_safe::CParameter;

use crate::keys::sha256;
use crate::wire::api::EngineKind;
use crate::wire::id::Digest;
use crate::yaml::{self, YamlError};

pub mod check;
pub mod document;
pub mod kind;
pub mod release;

pub use check::{CheckError, Components};
pub use document::Document;
pub use kind::{Kind, ObjectId};

/// A bundle in normal form, uncompressed, is refused above this many bytes.
pub const MAX_NORMAL: u64 = 32 << 20;

/// Install objects: JSON with sorted keys, ordered by (stage, kind, namespace, name).
#[derive(Debug, Clone, PartialEq)]
pub struct Bundle {
    pub engine: EngineKind,
    pub version: String,
    pub digest: Digest,
    /// Where the objects are to live; the digest is that of the form in which they live in the usual place.
    pub namespace: String,
    pub objects: Vec<Document>,
}

#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    #[error("read the install manifest")]
    Yaml(#[source] YamlError),
    #[error("the manifest is not UTF-8 text; give YAML, .gz or .tar.gz")]
    NotText,
    #[error("decompress the manifest: {0}")]
    Compressed(String),
    #[error("the manifest is larger than {MAX_NORMAL} bytes")]
    TooLarge,
    #[error(transparent)]
    Check(#[from] CheckError),
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum UnpackError {
    #[error("decompress the bundle: {0}")]
    Compressed(String),
    #[error("the bundle's digest is {found}, expected {expected}; import it again at the hub")]
    Digest { expected: Digest, found: Digest },
    #[error("the bundle is not in normal form: {0}")]
    Shape(String),
}

impl Bundle {
    /// Reads an upstream install manifest: multi-document YAML, `.gz` or `.tar.gz` of it. Of Flux' controllers those in
    /// `components` are kept; none = the usual four, as far as they are there.
    pub fn import(bytes: &[u8], components: Option<&Components>) -> Result<Self, ImportError> {
        let plain = plain(bytes)?;
        let text = std::str::from_utf8(&plain).map_err(|_| ImportError::NotText)?;
        let documents = yaml::documents(text).map_err(ImportError::Yaml)?;
        Ok(Self::of(check::check(documents, components)?))
    }

    /// Checks the objects and brings them into normal form.
    pub fn from_objects(objects: Vec<Value>) -> Result<Self, CheckError> {
        Ok(Self::of(check::check(objects, None)?))
    }

    fn of(checked: check::Checked) -> Self {
        let digest = digest(&checked.objects);
        Self {
            engine: checked.engine,
            version: checked.version,
            digest,
            namespace: check::namespace(checked.engine).to_owned(),
            objects: checked.objects.into_iter().map(Document::new).collect(),
        }
    }

    /// As it travels and is kept: zstd of the normal form.
    pub fn pack(&self) -> Vec<u8> {
        let normal = self.clone().within(check::namespace(self.engine));
        let objects: Vec<_> = normal.objects.iter().map(Document::whole).collect();
        compress(&normal_form(&objects))
    }

    /// The same for an engine in another namespace; the digest stays. Beside the objects' own only the subjects of
    /// bindings name one.
    #[must_use]
    pub fn within(mut self, namespace: &str) -> Self {
        let from = std::mem::replace(&mut self.namespace, namespace.to_owned());
        let moved = |at: &mut Value| {
            if at.as_str() == Some(from.as_str()) {
                *at = Value::from(namespace);
            }
        };
        for object in &mut self.objects {
            object.move_by(|object| {
                if let Some(at) = object.pointer_mut("/metadata/namespace") {
                    moved(at);
                }
                let subjects = object.get_mut("subjects").and_then(Value::as_array_mut);
                for subject in subjects.into_iter().flatten() {
                    if let Some(at) = subject.get_mut("namespace") {
                        moved(at);
                    }
                }
            });
        }
        self
    }

    /// The reverse of [`Bundle::pack`]; what does not have the digest `expected` is refused.
    pub fn unpack(bytes: &[u8], expected: &Digest) -> Result<Self, UnpackError> {
        let decoder =
            zstd::Decoder::new(bytes).map_err(|e| UnpackError::Compressed(e.to_string()))?;
        let plain = bounded(decoder).map_err(|e| UnpackError::Compressed(e.to_string()))?;
        let found = Digest::from_bytes(sha256(&plain));
        if found != *expected {
            return Err(UnpackError::Digest {
                expected: expected.clone(),
                found,
            });
        }
        let objects: Vec<Value> =
            serde_json::from_slice(&plain).map_err(|e| UnpackError::Shape(e.to_string()))?;
        let checked = check::recheck(objects).map_err(|e| UnpackError::Shape(e.to_string()))?;
        Ok(Self::of(checked))
    }

    /// The images that the install pulls, sorted, each once.
    pub fn images(&self) -> Vec<String> {
        let mut images: Vec<String> = self
            .objects
            .iter()
            .map(Document::head)
            .flat_map(check::images)
            .collect();
        images.sort();
        images.dedup();
        images
    }
}

/// zstd with its size in the header: for content of unknown size, a level as high as this one takes 80 MB of tables and window at
/// both ends.
pub(crate) fn compress(plain: &[u8]) -> Vec<u8> {
    let packed = packer().and_then(|mut packer| packer.compress(plain));
    packed.expect("compression from memory to memory has no way to fail")
}

/// The tables that the level has for as much as Argo CD's definitions take several times what these do (2 MB), and the C library
/// keeps them for the next packer. What is packed is a little longer so.
fn packer() -> std::io::Result<Compressor<'static>> {
    let mut packer = Compressor::new(19)?;
    packer.set_parameter(CParameter::HashLog(16))?;
    packer.set_parameter(CParameter::ChainLog(16))?;
    Ok(packer)
}

fn normal_form(objects: &[impl Serialize]) -> Vec<u8> {
    serde_json::to_vec(objects).expect("JSON values are always writable")
}

fn digest(objects: &[Value]) -> Digest {
    Digest::from_bytes(sha256(&normal_form(objects)))
}

/// Keys sorted at every level, whatever the order in which they were read.
pub fn sorted(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<(String, Value)> = map.into_iter().collect();
            entries.sort_by(|a, b| a.0.cmp(&b.0));
            Value::Object(entries.into_iter().map(|(k, v)| (k, sorted(v))).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(sorted).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value,
    }
}

fn bounded(reader: impl std::io::Read) -> std::io::Result<Vec<u8>> {
    let mut plain = Vec::new();
    reader.take(MAX_NORMAL + 1).read_to_end(&mut plain)?;
    if plain.len() as u64 > MAX_NORMAL {
        return Err(std::io::Error::other("larger than 32 MiB"));
    }
    Ok(plain)
}

/// Undoes gzip and tar.
fn plain(bytes: &[u8]) -> Result<Vec<u8>, ImportError> {
    let mut plain = bytes.to_vec();
    if bytes.starts_with(&[0x1f, 0x8b]) {
        plain = bounded(flate2::read::MultiGzDecoder::new(bytes))
            .map_err(|e| ImportError::Compressed(e.to_string()))?;
    }
    if plain.get(257..262) == Some(b"ustar") {
        plain = untar(&plain)?;
    }
    if plain.len() as u64 > MAX_NORMAL {
        return Err(ImportError::TooLarge);
    }
    Ok(plain)
}

/// The YAML files of a tar archive, one after the other. Only names and sizes of plain files are read.
fn untar(archive: &[u8]) -> Result<Vec<u8>, ImportError> {
    let broken = || ImportError::Compressed("the tar archive is cut short".to_owned());
    let mut text = Vec::new();
    let mut at = 0;
    while let Some(header) = archive.get(at..at + 512) {
        if header.iter().all(|b| *b == 0) {
            break;
        }
        let name = field(header, 0, 100);
        let size = usize::from_str_radix(field(header, 124, 12).trim(), 8).map_err(|_| broken())?;
        let plain_file = matches!(header.get(156), Some(b'0' | 0));
        let start = at + 512;
        let end = start.checked_add(size).ok_or_else(broken)?;
        let body = archive.get(start..end).ok_or_else(broken)?;
        let path = std::path::Path::new(&name);
        let is_yaml = path.extension().is_some_and(|e| e == "yaml" || e == "yml");
        if plain_file && is_yaml {
            text.extend_from_slice(b"\n---\n");
            text.extend_from_slice(body);
        }
        at = start + size.div_ceil(512) * 512;
    }
    Ok(text)
}

fn field(header: &[u8], from: usize, length: usize) -> String {
    let bytes = header.get(from..from + length).unwrap_or_default();
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

#[cfg(test)]
mod tests;
