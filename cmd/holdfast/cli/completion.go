package cli

import (
	"flag"
	"fmt"
	"strings"
)

func (a *app) completionMain(args []string) int {
	f := a.newFlags()
	rest, done := f.parse(args)
	if done {
		return exitOK
	}
	shell := f.one("shell (bash, zsh or fish)", rest)
	script, ok := map[string]func() string{"bash": bashCompletion, "zsh": zshCompletion, "fish": fishCompletion}[shell]
	if !ok && len(f.problems) == 0 {
		f.problem("%q: must be bash, zsh or fish", shell)
	}
	if f.failed() {
		return exitUsage
	}
	fmt.Fprint(a.out, script())
	return exitOK
}

// flagsOf are the flags of a verb, as its help lists them.
func flagsOf(name string) []string {
	a := &app{command: name}
	f := a.newFlags()
	switch name {
	case "run", "cron", "elect":
		(&runOptions{cron: name == "cron", elect: name == "elect"}).define(f)
	case "acquire":
		f.common(&common{})
		(&lockOptions{}).define(f)
	case "version", "completion":
	default:
		f.common(&common{})
	}
	var names []string
	f.VisitAll(func(fl *flag.Flag) { names = append(names, "--"+fl.Name) })
	switch name {
	case "break":
		names = append(names, "--token", "--owner", "--reason", "--force")
	case "renew":
		names = append(names, "--ttl")
	}
	return names
}

func verbNames() string {
	var names []string
	for _, v := range verbs() {
		names = append(names, v.name)
	}
	return strings.Join(names, " ")
}

// words is where the shell's variables differ.
func caseOfFlags() string {
	var b strings.Builder
	for _, v := range verbs() {
		fmt.Fprintf(&b, "    %s) flags=%q ;;\n", v.name, strings.Join(flagsOf(v.name), " "))
	}
	return b.String()
}

func bashCompletion() string {
	return `# holdfast completion bash > /etc/bash_completion.d/holdfast
_holdfast() {
  local cur=${COMP_WORDS[COMP_CWORD]} flags= i
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    if [[ ${COMP_WORDS[i]} == -- ]]; then
      compopt -o default
      ((COMP_CWORD == i + 1)) && COMPREPLY=($(compgen -c -- "$cur"))
      return
    fi
  done
  if ((COMP_CWORD == 1)); then
    COMPREPLY=($(compgen -W "` + verbNames() + `" -- "$cur"))
    return
  fi
  case ${COMP_WORDS[1]} in
` + caseOfFlags() + `  esac
  [[ $cur == -* ]] && COMPREPLY=($(compgen -W "$flags" -- "$cur"))
}
complete -F _holdfast holdfast
`
}

func zshCompletion() string {
	return `#compdef holdfast
_holdfast() {
  local flags=
  local dash=${words[(i)--]}
  if ((dash < CURRENT)); then
    words=("${(@)words[dash+1,-1]}")
    ((CURRENT -= dash))
    _normal
    return
  fi
  if ((CURRENT == 2)); then
    compadd -- ` + verbNames() + `
    return
  fi
  case ${words[2]} in
` + caseOfFlags() + `  esac
  [[ $PREFIX == -* ]] && compadd -- ${=flags}
}
if [[ $funcstack[1] == _holdfast ]]; then _holdfast "$@"; else compdef _holdfast holdfast; fi
`
}

func fishCompletion() string {
	var b strings.Builder
	b.WriteString(`# holdfast completion fish > ~/.config/fish/completions/holdfast.fish
function __holdfast_of_command # what follows the first -- is a command line of its own
  set -l words (commandline -opc)
  set -e words[1..(contains -i -- -- $words)]
  complete -C (string join ' ' -- (string escape -- $words) (commandline -ct))
end
complete -c holdfast -f
`)
	for _, v := range verbs() {
		fmt.Fprintf(&b, "complete -c holdfast -n __fish_use_subcommand -a %s -d %q\n", v.name, v.summary)
		for _, name := range flagsOf(v.name) {
			fmt.Fprintf(&b, "complete -c holdfast -n '__fish_seen_subcommand_from %s' -l %s\n", v.name, strings.TrimPrefix(name, "--"))
		}
	}
	b.WriteString("complete -c holdfast -n 'contains -- -- (commandline -opc)' -a '(__holdfast_of_command)'\n")
	return b.String()
}
