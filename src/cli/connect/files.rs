//! Files that the command line names: tokens, codes, the URL of a proxy, a CA.

use std::fs;
use std::io::Read;
use std::path::Path;

use anyhow::Result;

use super::is_stdin;
use crate::cli::exit::{Code, Failure, unread};
use crate::client;
use crate::secret::Secret;

/// A token file holds one token; more is another file.
const MAX_TOKEN_FILE: u64 = 4_096;
const MAX_CA_FILE: u64 = 1 << 20;

/// `-` is stdin, which gives it once: whoever needs it again keeps the [`super::Access`]. The token never travels in an argument, where
/// other users of the machine see it.
pub(in crate::cli) fn read_token(path: &Path) -> Result<Secret<String>> {
    read_secret(
        path,
        "token",
        "a hub token reads lmt1.…; the hub keeps its first in <data>/admin.token",
    )
}

/// A code that an admin made for a local user.
pub(in crate::cli) fn read_code(path: &Path) -> Result<Secret<String>> {
    read_secret(
        path,
        "login code",
        "a login code reads lml1.…; an admin makes one: linesman user login-code NAME",
    )
}

/// The URL of a proxy, with its password.
pub(in crate::cli) fn read_proxy(path: &Path) -> Result<Secret<String>> {
    read_secret(
        path,
        "proxy URL",
        "write http://user:password@host[:port], with %XX for what is no letter, digit or sign of ASCII",
    )
}

fn read_secret(path: &Path, what: &str, next: &str) -> Result<Secret<String>> {
    let read = if is_stdin(path) {
        let read = read_bounded(std::io::stdin(), MAX_TOKEN_FILE);
        read.map_err(|e| unread(&format!("read the {what} from stdin"), &e))?
    } else {
        let file = fs::File::open(path).and_then(|file| read_bounded(file, MAX_TOKEN_FILE));
        file.map_err(|e| unread(&format!("read the {what} file {}", path.display()), &e))?
    };
    let text = read.as_deref().map(str::trim).unwrap_or_default();
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_graphic()) {
        let holds = match read {
            Some(_) => format!("{} holds no {what}", path.display()),
            None => format!(
                "{} holds no {what}, but more than {MAX_TOKEN_FILE} bytes",
                path.display()
            ),
        };
        return Err(Failure::new(Code::Usage, holds, next).into());
    }
    Ok(Secret::new(text.to_owned()))
}

pub(in crate::cli) fn read_ca(path: &Path) -> Result<String> {
    let file = fs::File::open(path).and_then(|file| read_bounded(file, MAX_CA_FILE));
    let read = file.map_err(|e| unread(&format!("read the CA file {}", path.display()), &e))?;
    read.ok_or_else(|| {
        let holds = format!("{} holds more than {MAX_CA_FILE} bytes", path.display());
        let next = "name a PEM file with the CA alone: what is cut off would not be trusted";
        Failure::new(Code::Usage, holds, next).into()
    })
}

/// A CA that a flag of the hub names: one that cannot be used is found at the start, and not when somebody is called with it.
pub(in crate::cli) fn read_roots(flag: &str, path: &Path) -> Result<String> {
    let pem = read_ca(path)?;
    match client::roots(&pem) {
        Ok(_) => Ok(pem),
        Err(error) => {
            let text = format!("{flag} {}: {error}", path.display());
            let next = "name a PEM file with the certificate of the CA";
            Err(Failure::new(Code::Usage, text, next).into())
        }
    }
}

/// All of it; `None` where that is more than so many bytes.
fn read_bounded(from: impl Read, limit: u64) -> std::io::Result<Option<String>> {
    let mut bytes = Vec::new();
    from.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Ok(None);
    }
    String::from_utf8(bytes)
        .map(Some)
        .map_err(|e| std::io::Error::new(std::io::ErrorKind::InvalidData, e.utf8_error()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first 4 KiB of a longer file were taken for the token, and the first MiB of one for the CA.
    #[test]
    fn a_file_that_is_too_long_is_refused_and_not_cut() {
        let path = std::env::temp_dir().join(format!("linesman-connect-{}", std::process::id()));
        let text = |len: u64| "x".repeat(usize::try_from(len).unwrap());
        let usage = |error: anyhow::Error| {
            let failure = error.downcast::<Failure>().unwrap();
            assert_eq!(failure.code, Code::Usage);
            failure.to_string()
        };
        fs::write(&path, text(MAX_TOKEN_FILE)).unwrap();
        let token = read_token(&path).unwrap();
        assert_eq!(*token.expose(), text(MAX_TOKEN_FILE));
        fs::write(&path, text(MAX_TOKEN_FILE + 1)).unwrap();
        let said = usage(read_token(&path).unwrap_err());
        assert!(
            said.ends_with("holds no token, but more than 4096 bytes"),
            "{said}"
        );
        fs::write(&path, text(MAX_CA_FILE)).unwrap();
        assert_eq!(read_ca(&path).unwrap(), text(MAX_CA_FILE));
        fs::write(&path, text(MAX_CA_FILE + 1)).unwrap();
        let said = usage(read_ca(&path).unwrap_err());
        assert!(said.ends_with("holds more than 1048576 bytes"), "{said}");
        // What holds no certificate was found when somebody was called with it, in words about the hub's own CA.
        let shown = path.display();
        fs::write(&path, "garbage\n").unwrap();
        let said = usage(read_roots("--oidc-ca", &path).unwrap_err());
        let none = "read the CA certificate: it holds no certificate";
        assert_eq!(said, format!("--oidc-ca {shown}: {none}"));
        fs::remove_file(&path).unwrap();
        // One that is not there is as wrong a command line; it ended with another code.
        for (error, what) in [
            (read_token(&path).unwrap_err(), "token"),
            (read_ca(&path).unwrap_err(), "CA"),
        ] {
            let said = usage(error);
            let begins = format!("read the {what} file {shown}: ");
            assert!(said.starts_with(&begins), "{said}");
        }
    }
}
