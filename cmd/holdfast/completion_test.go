package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// completions are lines that somebody types, and what a shell makes of them when
// the last word is completed.
var completions = []struct{ typed, want string }{
	{"holdfast wa", "watch"},
	{"holdfast run --on-l", "--on-lost"},
	{"holdfast show --js", "--json"},
	{"holdfast break L --tok", "--token"},
	{"holdfast run --wait 1s L -- holdfast-quaint", "holdfast-quaintcmd"}, // what follows is a command
}

// completing asks a shell, which is given a script, to complete the lines.
func completing(t *testing.T, shell string, ask func(cmd *exec.Cmd, script string)) {
	t.Helper()
	path, err := exec.LookPath(shell)
	if err != nil {
		t.Fatalf("%v: make shells installs it", err)
	}
	s := newShop(t)
	script := s.run("completion", shell)
	script.want(t, 0)
	home := t.TempDir()
	file := filepath.Join(home, "_holdfast")
	if err := os.WriteFile(file, []byte(script.out), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, "holdfast-quaintcmd"), []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), path)
	cmd.Env = []string{"PATH=" + home + ":" + os.Getenv("PATH"), "HOME=" + home, "TERM=dumb", s.mark}
	cmd.Dir, cmd.WaitDelay = home, soon
	ask(cmd, file)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) != len(completions) {
		t.Fatalf("%q", out)
	}
	for i, c := range completions {
		if strings.TrimSpace(lines[i]) != c.want {
			t.Errorf("%s: %q became %q", shell, c.typed, lines[i])
		}
	}
}

func TestCompletionOfBash(t *testing.T) {
	completing(t, "bash", func(cmd *exec.Cmd, script string) {
		// What readline does: it splits the line into words and calls the function.
		drive := `source "$0"; compopt() { :; }
for line; do COMP_WORDS=($line); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _holdfast; echo "${COMPREPLY[@]}"; done`
		cmd.Args = append([]string{"bash", "--norc", "-c", drive, script}, typed()...)
	})
}

// zsh completes only what somebody types: so the lines are typed, on a terminal.
func TestCompletionOfZsh(t *testing.T) {
	const drive = `zmodload zsh/zpty
zpty z zsh -f -i
out=
hear() { local chunk; while [[ $out != *"$1"* ]]; do zpty -r z chunk || exit 1; out+=$chunk; done }
zpty -w z "$1"'; show() { print -r -- "<<${BUFFER##* }>>"; BUFFER= }; zle -N show; bindkey "^X" show; PS1=; print rea""dy'
hear ready
shift
for line; do
  out=
  zpty -w -n z "$line"$'\t\b\x18' # the space that follows a word is taken back
  hear '>>'
  print -r -- "${${out##*<<}%%>>*}"
done
zpty -d z`
	for how, setup := range map[string]string{
		"sourced":    `autoload -U compinit; compinit -u -D; source "$HOME/_holdfast"`,
		"autoloaded": `fpath=("$HOME" $fpath); autoload -U compinit; compinit -u -D`,
	} {
		t.Run(how, func(t *testing.T) {
			completing(t, "zsh", func(cmd *exec.Cmd, _ string) {
				cmd.Args = append([]string{"zsh", "-f", "-c", drive, "zsh", setup}, typed()...)
			})
		})
	}
}

func TestCompletionOfFish(t *testing.T) {
	completing(t, "fish", func(cmd *exec.Cmd, script string) {
		const drive = `source $argv[1]
for line in $argv[2..-1]; string split \t -f 1 -- (complete -C $line); end`
		cmd.Args = append([]string{"fish", "--no-config", "-c", drive, script}, typed()...)
	})
}

func typed() (lines []string) {
	for _, c := range completions {
		lines = append(lines, c.typed)
	}
	return lines
}
