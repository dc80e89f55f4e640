"""From a list of arguments to a line of bash, and the job's number in place of its name.

What the caller's shell passed must reach the program as it came: spaces, apostrophes, quotes, globs, `&&` in a word,
the script after `bash -c`. These are left to the job's shell, as scripts written for Kaldi's launchers pass them so:
  - a word that is an operator (`|`, `||`, `&&`, `;`, `&`, parentheses, braces, `!`) or a redirection (`>`, `2>&1`);
  - a `;` at the end of a word without spaces;
  - `$NAME`, `${...}`, `$(...)` in a word without spaces or double quotes;
  - the arithmetic `$[...]` in a word without double quotes, and `\\$` for a plain `$` in one with spaces.
"""

import re
import shlex

OPERATOR = re.compile(r"\|\|?|\|&|&&?|;|\(|\)|\{|\}|!")
REDIRECTION = re.compile(r"(\d*(?:<<<|<>|<&|>>|>\||>&|<|>)|&>>?)(.*)", re.DOTALL)
EXPANSION = re.compile(r"\$[A-Za-z_{(\[]")


def substitute(text: str, job_name: str | None, job: int) -> str:
    """`text` with `job` for each whole word `job_name`; a letter or digit beside it makes another word, `_` does not.

    >>> substitute("exp/JOBS/wav_JOB.JOB.ark", "JOB", 3)
    'exp/JOBS/wav_3.3.ark'
    """
    if job_name is None or job_name not in text:
        return text
    return re.sub(rf"(?<![A-Za-z0-9]){re.escape(job_name)}(?![A-Za-z0-9])", str(job), text)


def shell_command(words: list[str]) -> str:
    """One line of bash that runs `words`."""
    return " ".join(_shell_word(word) for word in words)


def _shell_word(word: str) -> str:
    if OPERATOR.fullmatch(word):
        return word
    redirection = REDIRECTION.fullmatch(word)
    if redirection and not re.fullmatch(r"<.*>", word, re.DOTALL):  # <unk> is a word of a lexicon, not a redirection
        operator, target = redirection.groups()
        return operator + (_quoted(target) if target else "")
    if word.endswith(";") and not re.search(r"\s", word):
        return _quoted(word[:-1]) + ";"
    return _quoted(word)


def _quoted(word: str) -> str:
    spaced = re.search(r"\s", word) is not None
    live = re.search(r"\$\[|\\\$", word) if spaced else EXPANSION.search(word)
    if not live or '"' in word:
        return shlex.quote(word)
    # Double quotes let the expansions work; whatever else is special inside them is made plain.
    text = re.sub(r"\\(?!\$)|`", r"\\\g<0>", word)
    begins = r"\[" if spaced else r"[A-Za-z_{(\[]"
    return '"' + re.sub(rf"(?<!\\)\$(?!{begins})", r"\\$", text) + '"'
