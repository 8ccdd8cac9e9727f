//! Asks whoever sits at the terminal before something is done that cannot simply be undone.

use std::io::{self, BufRead as _, IsTerminal as _};

use anyhow::{Context as _, Result};

use super::exit::{Code, Failure};
use super::output::progress_line;

/// What a verb is about to do.
pub(super) struct Question<'a> {
    /// `removing cluster eu1`
    pub doing: String,
    /// What it comes to, line by line.
    pub means: Vec<String>,
    /// What has to be typed, and what that is called.
    pub word: (&'a str, &'a str),
    /// The command that does not ask.
    pub unasked: String,
}

/// An error unless the word was typed.
pub(super) fn confirm(question: &Question<'_>) -> Result<()> {
    let Question {
        doing,
        means,
        word: (word, called),
        unasked,
    } = question;
    if !io::stdin().is_terminal() {
        return Err(Failure::new(
            Code::Usage,
            format!("{doing} needs a yes, and nobody is here to ask"),
            format!("run: {unasked}"),
        )
        .into());
    }
    for line in means {
        progress_line(line);
    }
    progress_line(&format!("Type {called} to go on:"));
    let mut answer = String::new();
    io::stdin()
        .lock()
        .read_line(&mut answer)
        .context("read the answer")?;
    if answer.trim() == *word {
        return Ok(());
    }
    Err(Failure::new(Code::Failed, "not confirmed; nothing was changed", "").into())
}
