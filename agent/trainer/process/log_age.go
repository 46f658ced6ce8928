package process

import (
	"os"
	"time"
)

// age is when the entry was last written; one that is gone counts as oldest.
func age(e os.DirEntry) time.Time {
	info, err := e.Info()
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}
