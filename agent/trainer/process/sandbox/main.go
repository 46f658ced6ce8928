package sandbox

import (
	"encoding/json"
	"fmt"
	"os"
)

// errand is what a helper is told to do, as JSON in its second argument. Nothing in it is secret.
type errand struct {
	Policy   Policy   `json:"policy"`
	Restrict bool     `json:"restrict,omitempty"` // with Landlock and seccomp, not with limits alone
	Proof    *attempt `json:"proof,omitempty"`    // try this instead of becoming a program
}

// Main is the helper: it limits and restricts itself and becomes the program that the arguments name. args are os.Args[1:],
// of which the first is HelperWord; it returns only when that fails, with the exit code. main must call it before anything
// else has started.
func Main(args []string) int {
	var e errand
	if len(args) < 2 || json.Unmarshal([]byte(args[1]), &e) != nil {
		fmt.Fprintln(os.Stderr, "this is the agent's own helper; it is not for people")
		return 2
	}
	if e.Proof != nil {
		return e.Proof.run(os.Stdout)
	}
	if len(args) < 3 {
		fmt.Fprintln(os.Stderr, "no program is named")
		return 2
	}
	if err := become(e, args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "the program cannot be started:", err)
		return exitUnstarted
	}
	return 0
}

// exitUnstarted is the shell's code for a program that cannot be started.
const exitUnstarted = 126

// line gives the words that let the helper do the errand. exe is this binary.
func line(exe string, e errand, command []string) []string {
	b, err := json.Marshal(e)
	if err != nil {
		panic("broken promise: an errand is plain data: " + err.Error())
	}
	return append([]string{exe, HelperWord, string(b)}, command...)
}
