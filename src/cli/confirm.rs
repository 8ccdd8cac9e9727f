//! Asks whoever sits at the terminal before something is done that cannot simply be undone.

use std::borrow::Cow;
use std::io::{self, BufRead, IsTerminal as _};

use anyhow::{Context as _, Result};

use super::connect::Connect;
use super::exit::{Code, Failure};
use super::output::{Output, progress_line};

/// The flag of each verb that asks.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(super) struct Yes {
    /// Do not ask
    #[arg(long, short)]
    pub yes: bool,
}

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
    let Question { doing, unasked, .. } = question;
    if !io::stdin().is_terminal() {
        return Err(Failure::new(
            Code::Usage,
            format!("{doing} needs a yes, and nobody is here to ask"),
            format!("run: {unasked}"),
        )
        .into());
    }
    answered(question, &mut io::stdin().lock())
}

fn answered(question: &Question<'_>, from: &mut impl BufRead) -> Result<()> {
    let (word, called) = question.word;
    for line in &question.means {
        progress_line(line);
    }
    progress_line(&format!("Type {called} to go on:"));
    let mut answer = String::new();
    from.read_line(&mut answer).context("read the answer")?;
    // What nobody could type is no word.
    if !word.is_empty() && answer.trim() == word {
        return Ok(());
    }
    Err(Failure::new(Code::Failed, "not confirmed; nothing was changed", "").into())
}

/// The command that does not ask, by the words behind `linesman`: at the same hub, with all that was given.
pub(super) fn whole_command(words: &[&str], connect: &Connect, output: &Output) -> String {
    let mut words = given(words, connect, output);
    words.push("--yes".to_owned());
    command(&words)
}

/// The same where nothing would be asked.
pub(super) fn plain_command(words: &[&str], connect: &Connect, output: &Output) -> String {
    command(&given(words, connect, output))
}

fn given(words: &[&str], connect: &Connect, output: &Output) -> Vec<String> {
    let words = ["linesman"].iter().chain(words);
    let mut words: Vec<_> = words.map(|word| (*word).to_owned()).collect();
    words.extend(connect.typed());
    words.extend(output.typed());
    words
}

/// The command line of these words, as a shell reads it.
pub(super) fn command(words: &[String]) -> String {
    let words: Vec<_> = words.iter().map(|word| quoted(word)).collect();
    words.join(" ")
}

fn quoted(word: &str) -> Cow<'_, str> {
    // What no shell takes for more than itself.
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.into();
    }
    format!("'{}'", word.replace('\'', r"'\''")).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reason is several words, and may hold what a shell would run.
    #[test]
    fn a_command_is_read_by_a_shell_as_it_was_given() {
        let words = ["linesman", "x", "--reason", "Ada's $(id)", "a=b", ""].map(str::to_owned);
        assert_eq!(
            command(&words),
            r"linesman x --reason 'Ada'\''s $(id)' a=b ''"
        );
    }

    #[test]
    fn only_the_word_itself_goes_on() {
        let question = |word| Question {
            doing: "removing user ada".to_owned(),
            means: Vec::new(),
            word: (word, "the user's name"),
            unasked: "linesman user remove ada --yes".to_owned(),
        };
        let goes_on = |word, typed: &str| answered(&question(word), &mut typed.as_bytes()).is_ok();
        assert!(goes_on("ada", "ada\n") && goes_on("ada", " ada \r\n") && goes_on("ada", "ada"));
        for typed in ["", "\n", "y\n", "yes\n", "Ada\n", "ada bob\n", "\nada\n"] {
            assert!(!goes_on("ada", typed), "{typed:?}");
        }
        assert!(!goes_on("", "\n"));
    }
}
