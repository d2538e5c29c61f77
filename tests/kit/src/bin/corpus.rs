//! `corpus unpack FILE DIRECTORY` and `corpus pack DIRECTORY FILE`: converts between the packed corpora and libFuzzer's
//! directories of files. `corpus dictionary FILE FILE`: adds the commands to the words of the first file.

use std::path::Path;
use std::process::ExitCode;

use beanstalkd_testkit::corpus;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["unpack", file, directory] => corpus::unpack(Path::new(file), Path::new(directory)),
        ["pack", directory, file] => corpus::pack(Path::new(directory), Path::new(file)),
        ["dictionary", from, to] => corpus::write_dictionary(Path::new(from), Path::new(to)),
        _ => {
            eprintln!(
                "corpus: expected `unpack FILE DIRECTORY`, `pack DIRECTORY FILE` or `dictionary FILE FILE`"
            );
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("corpus: {error}");
            ExitCode::FAILURE
        }
    }
}
