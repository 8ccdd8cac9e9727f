//! What is shown once, a token or a code: it goes to stdout or into a file, and no form of output loses it.

use std::path::Path;

use anyhow::Result;
use serde::Serialize;

use super::exit::{Code, Failure};
use super::output::{Format, document, done, emit};
use super::session::Replacement;

/// The file for it, opened: what cannot be written, and a form that leaves the secret out, is known before there is one.
pub(super) fn place(
    what: &str,
    file: Option<&Path>,
    format: Format,
) -> Result<Option<Replacement>> {
    if file.is_none() && format == Format::Name {
        let lost = format!("-o name prints a name alone, and the {what} would be lost");
        let next = format!("say where the {what} is to go: --file FILE");
        return Err(Failure::new(Code::Usage, lost, next).into());
    }
    file.map(Replacement::open).transpose()
}

/// What was made.
pub(super) struct Made<'a, W, R> {
    pub name: &'a str,
    pub secret: &'a str,
    /// With the secret.
    pub whole: &'a W,
    /// Without it: what a program reads where the secret is in a file.
    pub rest: &'a R,
}

pub(super) fn give<W: Serialize, R: Serialize>(
    made: &Made<'_, W, R>,
    file: Option<Replacement>,
    format: Format,
) -> Result<()> {
    let secret = format!("{}\n", made.secret);
    if let Some(file) = file {
        file.write(secret.as_bytes())?;
        return done(format, made.name, made.rest);
    }
    match format {
        Format::Json | Format::Yaml => emit(&document(format, made.whole)?),
        Format::Table | Format::Wide | Format::Name => emit(&secret),
    }
}
