//! What a command of the plugin runs in the agent's container: the command of that name, or two for a word of kubectl.

use core::iter;

/// Commands that ask an agent, and read or write no file.
const OWN: [&str; 15] = [
    "check",
    "drain",
    "incident",
    "incidents",
    "lmap",
    "metric",
    "open",
    "paths",
    "receipt",
    "sources",
    "status",
    "top",
    "trigger",
    "undrain",
    WATCH,
];
/// Goes on until Ctrl-C.
const WATCH: &str = "watch";
/// Is recorded there, and trained here.
pub(super) const TRAIN: &str = "train";
/// Takes a file of this machine there.
pub(super) const MODEL: &str = "model";
/// The one word that is about a service.
const DESCRIBE: &str = "describe";
/// Words of kubectl, and the commands that answer them, one after the other.
const WORDS: [(&str, [&str; 2]); 2] = [(DESCRIBE, ["lmap", "metric"]), ("traces", ["receipt", "paths"])];
/// The only option of words of kubectl.
const RUNTIME_DIR: &str = "--runtime-dir";

/// The calls of uview that carry out `command` on one node, or on each with `on_all`; or what is wrong with it.
pub(super) fn calls(command: &[String], on_all: bool) -> Result<Vec<Vec<String>>, String> {
    let Some((name, rest)) = command.split_first() else { return Err(unknown()) };
    if let Some((_, answers)) = WORDS.iter().find(|(word, _)| word == name) {
        check(name, rest)?;
        let call = |answer: &&str| iter::once((*answer).to_owned()).chain(rest.iter().cloned()).collect();
        return Ok(answers.iter().map(call).collect());
    }
    if !OWN.contains(&name.as_str()) {
        return Err(unknown());
    }
    if name == WATCH {
        let starts = |word: &String| word == "--" || word == "--private" || word.starts_with("--preload");
        if rest.iter().any(starts) {
            return Err("nothing is started in the agent's container: watch a program that runs on the node".to_owned());
        }
        if on_all {
            return Err("it goes on until Ctrl-C: name one node by --node".to_owned());
        }
    }
    Ok(vec![command.to_vec()])
}

fn unknown() -> String {
    let words = WORDS.map(|(word, _)| word);
    format!("only commands that ask an agent run there: {}, {}, {TRAIN}, {MODEL}", OWN.join(", "), words.join(", "))
}

/// Words of kubectl only show something: what would change an LMAP is for its own command.
fn check(name: &str, rest: &[String]) -> Result<(), String> {
    let options = if name == DESCRIBE {
        let of_service = rest.split_first().filter(|(service, _)| !service.starts_with('-'));
        let Some((_, options)) = of_service else {
            return Err("name a service, as `status` lists them".to_owned());
        };
        options
    } else {
        rest
    };
    match options {
        [] => Ok(()),
        [option, _] if option == RUNTIME_DIR => Ok(()),
        _ => Err(format!("{name} has no other option than {RUNTIME_DIR}: see the commands that it runs")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Result<Vec<String>, String> {
        let command: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
        Ok(calls(&command, false)?.into_iter().map(|call| call.join(" ")).collect())
    }

    #[test]
    fn words_of_kubectl_are_commands_that_show_something() {
        assert_eq!(
            of("describe shop/payment"),
            Ok(vec!["lmap shop/payment".to_owned(), "metric shop/payment".to_owned()])
        );
        let both = vec!["receipt --runtime-dir /run/a".to_owned(), "paths --runtime-dir /run/a".to_owned()];
        assert_eq!(of("traces --runtime-dir /run/a"), Ok(both));
        for wrong in
            ["describe", "describe --json", "describe shop/payment --delete", "describe a b/c", "traces --html a"]
        {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_command_that_asks_an_agent_is_itself_and_others_are_refused() {
        assert_eq!(of("lmap a --delete"), Ok(vec!["lmap a --delete".to_owned()]));
        assert_eq!(of("trigger a --for 5m"), Ok(vec!["trigger a --for 5m".to_owned()]));
        for wrong in ["", "replay a.csv", "child", "host-agent"] {
            let said = of(wrong).unwrap_err();
            assert!(said.contains("top, trigger, undrain, watch, describe, traces, train, model"), "{wrong}");
        }
    }

    #[test]
    fn a_program_of_one_node_is_watched_and_none_is_started() {
        assert_eq!(of("watch --name kubelet"), Ok(vec!["watch --name kubelet".to_owned()]));
        for wrong in ["watch --preload -- redis-server", "watch --preload=/tmp/a.so", "watch --private --name a"] {
            assert!(of(wrong).unwrap_err().contains("nothing is started"), "{wrong}");
        }
        let command = ["watch".to_owned(), "--name".to_owned(), "kubelet".to_owned()];
        assert!(calls(&command, true).unwrap_err().contains("until Ctrl-C"));
    }
}
