//! `linesman completion`: a shell's completion script.

use anyhow::Result;
use clap::CommandFactory as _;
use clap_complete::Shell;

use super::Cli;
use super::output::emit;

const EXAMPLES: &str = "\
Examples:
  linesman completion bash > /etc/bash_completion.d/linesman
  linesman completion zsh > \"${fpath[1]}/_linesman\"";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// The shell
    shell: Shell,
}

pub(super) fn run(args: &Args) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "linesman", &mut script);
    emit(&String::from_utf8_lossy(&script))
}
