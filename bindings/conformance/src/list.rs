//! The list of cases: one command per line, `=>` before what the reply must contain.

/// A case: its name is the sentence that it proves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// The sentence after `case`.
    pub name: String,
    /// What is done, in order.
    pub commands: Vec<Command>,
}

/// A line of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// Its line in the list, from 1 on.
    pub line: usize,
    /// Its words, at least one.
    pub words: Vec<String>,
    /// What the reply has to be: its first word, and text that has to stand in it.
    pub reply: (String, String),
}

/// A line that is no command.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the list, {text:?}: {why}")]
pub struct ListError {
    /// The line, from 1 on.
    pub line: usize,
    /// Its text as it stands there.
    pub text: String,
    /// What is wrong.
    pub why: &'static str,
}

/// Reads a list. `repeat N COMMAND` stands for N commands in which `{}` is replaced by 0 to N − 1; `{x*300}` stands for
/// 300 times `x`.
pub(crate) fn parse(text: &str) -> Result<Vec<Case>, ListError> {
    let mut cases: Vec<Case> = Vec::new();
    for (line, text) in (1..).zip(text.lines()) {
        let error = |why| ListError { line, text: text.to_owned(), why };
        let trimmed = text.trim();
        if trimmed.is_empty() || trimmed.starts_with('#') {
            continue;
        }
        if let Some(name) = trimmed.strip_prefix("case ") {
            cases.push(Case { name: name.to_owned(), commands: Vec::new() });
            continue;
        }
        let case = cases.last_mut().ok_or_else(|| error("a command before the first case"))?;
        let (times, command) = match trimmed.strip_prefix("repeat ").map(|rest| rest.split_once(' ')) {
            None => (1, trimmed),
            Some(Some((times, rest))) => (times.parse().map_err(|_| error("repeat needs a number"))?, rest),
            Some(None) => return Err(error("repeat needs a command")),
        };
        for number in 0..times {
            let command = expanded(command).ok_or_else(|| error("no number after * in braces"))?;
            case.commands.push(parsed(line, &command.replace("{}", &number.to_string())));
        }
    }
    Ok(cases)
}

fn parsed(line: usize, text: &str) -> Command {
    let (command, reply) = text.split_once(" => ").unwrap_or((text, "ok"));
    let (first, rest) = reply.trim().split_once(' ').unwrap_or((reply.trim(), ""));
    let words = command.split_whitespace().map(str::to_owned).collect();
    Command { line, words, reply: (first.to_owned(), rest.to_owned()) }
}

/// `text` with `{x*300}` written out; `None` if there is no number.
fn expanded(text: &str) -> Option<String> {
    let mut result = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        let Some((braced, after)) = after.split_once('}') else { break };
        result += before;
        match braced.split_once('*') {
            Some((what, times)) => result += &what.repeat(times.parse().ok()?),
            None => result.extend(["{", braced, "}"]),
        }
        rest = after;
    }
    Some(result + rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_repeated_and_its_reply_is_read() {
        let cases = parse("# text\ncase one thing\n\nrepeat 2 counter h{} m.{x*3} => detached more than\n").unwrap();

        assert_eq!(cases.len(), 1);
        assert_eq!(cases[0].name, "one thing");
        let [_, second] = &cases[0].commands[..] else { unreachable!("two commands") };
        assert_eq!((second.line, second.words.join(" ")), (4, "counter h1 m.xxx".to_owned()));
        assert_eq!(second.reply, ("detached".to_owned(), "more than".to_owned()));
    }

    #[test]
    fn a_line_that_is_no_command_is_named() {
        for (text, line) in
            [("open a", 1), ("case a\nrepeat x open", 2), ("case a\n\nrepeat 3", 3), ("case a\nopen {a*b}", 2)]
        {
            assert_eq!(parse(text).unwrap_err().line, line, "{text}");
        }
    }
}
