package embedded

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/minio/highwayhash"
)

// What nats-server (2.15.2) keeps of a durable consumer, each in a folder of its own: its configuration, whose checksum it
// writes and does not read, and its place in the stream, which has none.
const (
	consumerConfig = "meta.inf"
	consumerSum    = "meta.sum"
	consumerState  = "o.dat"
	stateMagic     = 22
	stateVersion   = 2
	// maxConsumerFile is more than 256 unacknowledged messages take, the most that an observer may have.
	maxConsumerFile = 1 << 20
)

// mendConsumers judges the consumers of the stream in a folder, which ends at last.
func mendConsumers(stream string, last uint64) (said []string, err error) {
	dirs, err := filepath.Glob(filepath.Join(stream, "obs", "*"))
	if err != nil {
		return nil, err
	}
	for _, dir := range dirs {
		name := filepath.Base(stream) + "/" + filepath.Base(dir)
		config, err := readLimited(filepath.Join(dir, consumerConfig))
		if errors.Is(err, fs.ErrNotExist) {
			continue // not one yet
		}
		if err != nil {
			return said, err
		}
		sum, err := readLimited(filepath.Join(dir, consumerSum))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return said, err
		}
		if want, err := configSum(name, config); err != nil {
			return said, err
		} else if string(sum) != want {
			if err := os.RemoveAll(dir); err != nil {
				return said, err
			}
			said = append(said, fmt.Sprintf("the configuration of consumer %s was damaged: the consumer is removed, and an observer's is made anew", name))
			continue
		}
		state, err := readLimited(filepath.Join(dir, consumerState))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return said, err
		}
		if why := badConsumer(state, last); why != "" {
			if err := os.Remove(filepath.Join(dir, consumerState)); err != nil { // an empty one would be a place before the first message
				return said, err
			}
			said = append(said, fmt.Sprintf("the place of consumer %s was damaged (%s): it begins anew", name, why))
		}
	}
	return said, nil
}

// readLimited reads a consumer's file, of one that is too long just so much as to be refused.
func readLimited(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxConsumerFile))
}

// configSum is the checksum of a consumer's configuration, by the name of its stream and its own.
func configSum(name string, config []byte) (string, error) {
	key := sha256.Sum256([]byte(name))
	h, err := highwayhash.New64(key[:])
	if err != nil {
		return "", err
	}
	h.Write(config)
	return hex.EncodeToString(h.Sum(nil)), nil
}

// badConsumer says what is wrong with a consumer's state in a stream that ends at last. It holds the positions of acknowledgement and
// of delivery, each in the consumer and in the stream; how many messages wait for an answer, the time of the first, and
// for each its distances from both acknowledged positions and its time; how many were sent again, and two numbers for each.
func badConsumer(b []byte, last uint64) string {
	if len(b) < 2 || b[0] != stateMagic || b[1] != stateVersion {
		return "its first bytes are not a state's"
	}
	r := numbers{r: bytes.NewReader(b[2:])}
	ackedHere, acked, sentHere, sent := r.next(), r.next(), r.next(), r.next()
	if ackedHere > sentHere || acked > sent || sent > last+maxJump {
		return fmt.Sprintf("acknowledged %d of %d, up to %d of %d in a stream of %d", ackedHere, sentHere, acked, sent, last)
	}
	waiting := r.count(3)
	if waiting > 0 {
		r.next()
	}
	for range waiting {
		if far := r.next(); far == 0 || far > sent-acked {
			return fmt.Sprintf("message %d waits for an answer, of those behind %d up to %d", acked+far, acked, sent)
		}
		r.next()
		r.next()
	}
	for range r.count(2) {
		r.next()
		r.next()
	}
	if r.bad != nil || r.r.Len() > 0 {
		return fmt.Sprintf("%d bytes do not fit what they count (%v)", len(b), r.bad)
	}
	return ""
}

// numbers reads numbers of varying length, and remembers the first that was not there.
type numbers struct {
	r   *bytes.Reader
	bad error
}

func (n *numbers) next() uint64 {
	v, err := binary.ReadUvarint(n.r)
	n.bad = cmp.Or(n.bad, err)
	return v
}

// count reads how many entries of so many numbers follow: never more than there are bytes for.
func (n *numbers) count(each int) uint64 {
	v := n.next()
	if v > uint64(n.r.Len()/each) {
		n.bad = cmp.Or(n.bad, fmt.Errorf("%d entries in %d bytes", v, n.r.Len()))
		return 0
	}
	return v
}
