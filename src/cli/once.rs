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
    /// What a person does where it came to nobody.
    pub lost: &'a str,
}

pub(super) fn give<W: Serialize, R: Serialize>(
    made: &Made<'_, W, R>,
    file: Option<Replacement>,
    format: Format,
) -> Result<()> {
    let secret = format!("{}\n", made.secret);
    // A reader that has gone has not had enough of what is shown once.
    let lost = |error: anyhow::Error| {
        let text = format!("{error:#}; nobody has it now");
        anyhow::Error::from(Failure::new(Code::Failed, text, made.lost))
    };
    if let Some(file) = file {
        file.write(secret.as_bytes()).map_err(lost)?;
        return done(format, made.name, made.rest);
    }
    let shown = match format {
        Format::Json | Format::Yaml => document(format, made.whole)?,
        Format::Table | Format::Wide | Format::Name => secret,
    };
    emit(&shown).map_err(lost)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It was in force, and whoever ran the command was told of the disk alone.
    #[test]
    fn what_came_to_nobody_is_said_to_be_lost() {
        let file = Replacement::open(Path::new("/dev/full")).unwrap();
        let made = Made {
            name: "aB_9xQ",
            secret: "lmt1.x.y",
            whole: &"",
            rest: &"",
            lost: "make another one",
        };
        let error = give(&made, Some(file), Format::Table).unwrap_err();
        let failure = error.downcast_ref::<Failure>().unwrap();
        assert_eq!(
            (failure.code, failure.next.as_str()),
            (Code::Failed, "make another one")
        );
        let told = &failure.message;
        assert!(told.starts_with("write /dev/full: "), "{told}");
        assert!(
            told.ends_with("; nobody has it now") && !told.contains("lmt1."),
            "{told}"
        );
    }
}
