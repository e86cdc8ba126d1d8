//! Writes the valid inputs of each target to `<folder>/<target>/`, and prints the names of the targets.

use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    let Some(folder) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("usage: seeds <folder>");
        return ExitCode::from(2);
    };
    for (name, _) in towpath_fuzz::TARGETS {
        let folder = folder.join(name);
        let written = std::fs::create_dir_all(&folder).and_then(|()| {
            let mut seeds = towpath_fuzz::seeds::of(name).into_iter().enumerate();
            seeds.try_for_each(|(number, seed)| std::fs::write(folder.join(format!("seed-{number}")), seed))
        });
        if let Err(error) = written {
            eprintln!("{}: {error}", folder.display());
            return ExitCode::FAILURE;
        }
        println!("{name}");
    }
    ExitCode::SUCCESS
}
