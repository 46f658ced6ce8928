package sandbox

import (
	"os"
	"slices"
)

// bubblewrapLine gives the words that run command under bwrap: new namespaces for users, processes, network, names and
// IPC; a file system that holds nothing but what the policy names; no capability. It ends with the agent.
//
// bwrap ends at SIGTERM and takes the program with it: a program in it has the time after close for its own end, not
// the time after SIGTERM.
func bubblewrapLine(bwrap string, p Policy, command []string) []string {
	w := []string{bwrap, "--die-with-parent", "--unshare-all", "--new-session", "--cap-drop", "ALL"}
	if p.Network {
		w = append(w, "--share-net")
	}
	w = append(w, "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs", "/run")
	read := slices.Clone(p.Read)
	slices.Sort(read) // what lies above comes first
	for _, path := range read {
		w = append(w, "--ro-bind-try", path, path)
	}
	for _, path := range p.Hide {
		if slices.ContainsFunc(read, func(r string) bool { return within(path, r) }) && isDir(path) {
			w = append(w, "--tmpfs", path)
			for _, r := range read { // what is read below it after all
				if r != path && within(r, path) {
					w = append(w, "--ro-bind-try", r, r)
				}
			}
		}
	}
	for _, path := range p.Devices {
		if !slices.Contains(plainDevices[:], path) { // --dev made those
			w = append(w, "--dev-bind-try", path, path)
		}
	}
	write := slices.Clone(p.Write)
	slices.Sort(write)
	for _, path := range write {
		w = append(w, "--bind", path, path)
	}
	if p.Dir != "" {
		w = append(w, "--chdir", p.Dir)
	}
	return append(append(w, "--"), command...)
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
