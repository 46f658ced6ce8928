package main

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/adrg/xdg"
	"github.com/spf13/cobra"

	"tensorturn/broker/identity"
	"tensorturn/domain"
)

func agentCommand(a *app) *cobra.Command {
	return group("agent", "join this machine to a pool and work for it", agentJoin(a), agentStart(a))
}

// agentDir is the default place of an agent's keys and cache.
func agentDir() string { return filepath.Join(xdg.DataHome, "tensorturn", "agent") }

// proxyHelp stands in the help of the commands that dial the hub from a machine.
const proxyHelp = "Where only an HTTP proxy leads out, set HTTPS_PROXY=http://user:password@proxy:3128; NO_PROXY names hosts to reach directly."

const agentKeysFile = "agent.json"

func agentJoin(a *app) *cobra.Command {
	var dir, token, tokenFile, name string
	var slots slotCount
	c := &cobra.Command{Use: "join URL", Short: "make this machine a member of the pool at URL", Args: args("URL"),
		Long: "Makes a key on this machine, checks that the hub is the one the token was made for, and enrols.\n" +
			"The credential lives 24 h; the running agent renews it.\n" +
			proxyHelp,
		RunE: func(c *cobra.Command, got []string) error {
			plain, err := readToken(token, tokenFile)
			if err != nil {
				return err
			}
			keys, err := a.join(c.Context(), joinRequest{dir: dir, hub: got[0], token: plain, name: name, slots: max(1, int(slots))})
			if err != nil {
				return err
			}
			if a.json {
				return a.object(map[string]string{"machine": string(keys.Machine), "hub": keys.Hub, "nkey": keys.NKey()})
			}
			a.print("%s", keys.Machine)
			a.say("joined %s; start working with: tensorturn agent start%s", keys.Hub, dirFlag(dir))
			return nil
		}}
	joinFlags(c, &dir, &token, &tokenFile, &name, &slots)
	return c
}

func joinFlags(c *cobra.Command, dir, token, tokenFile, name *string, slots *slotCount) {
	f := c.Flags()
	f.StringVar(dir, "dir", agentDir(), "folder of this agent's keys and cache")
	f.StringVar(token, "token", "", "join token (visible to other users of this machine while the command runs)")
	f.StringVar(tokenFile, "token-file", "", "file that holds the join token, - for standard input")
	f.StringVar(name, "name", hostname(), "name of this machine, for people")
	f.Var(slots, "slots", "how many trainers run beside each other; auto: one on each GPU, or one on the CPU where there is none")
}

func dirFlag(dir string) string {
	if dir == agentDir() {
		return ""
	}
	return " --dir " + dir
}

func hostname() string {
	h, err := os.Hostname()
	if err != nil || h == "" {
		return "machine"
	}
	return domain.Clip(h, domain.MaxNameLength)
}

// readToken takes the token from the flag, the file or standard input.
func readToken(token, file string) (string, error) {
	switch {
	case token != "" && file != "":
		return "", domain.Invalid("read join token", "both --token and --token-file are given", "give one of them")
	case token != "":
		return strings.TrimSpace(token), nil
	case file == "":
		return "", domain.Invalid("read join token", "none is given", "make one at the hub with: tensorturn token create; then give --token or --token-file")
	}
	var b []byte
	var err error
	if file == "-" {
		b, err = readLimited(os.Stdin, 4<<10)
	} else {
		var f *os.File
		if f, err = os.Open(file); err == nil {
			defer f.Close()
			b, err = readLimited(f, 4<<10)
		}
	}
	if err != nil {
		return "", domain.NotFound("read join token", plainPathError(err), "write the token into a file that this user can read, or give - and send it to standard input")
	}
	return strings.TrimSpace(string(b)), nil
}

// hubsFolder refuses a hub's folder where an agent's is wanted.
func hubsFolder(op, dir string) error {
	return domain.Conflict(op, dir+" is the folder of a hub", "give the agent a folder of its own with --dir; the hub is started with: tensorturn hub start --dir "+dir)
}

// loadAgent reads the keys of an agent that has joined.
func loadAgent(dir string) (*identity.AgentKeys, error) {
	keys, err := identity.LoadAgentKeys(filepath.Join(dir, agentKeysFile))
	if domain.KindOf(err) == domain.KindNotFound && isHub(dir) {
		return nil, hubsFolder("start agent", dir)
	}
	if err != nil {
		return nil, err
	}
	if !keys.Enrolled() {
		return nil, domain.NotFound("start agent", "this machine has not joined a pool", "join with: tensorturn agent join URL --token T"+dirFlag(dir))
	}
	return keys, nil
}
