package event

import "encoding/binary"

// Reseal puts the right checksum under changed bytes: what a forger would do.
func Reseal(b []byte) []byte {
	if len(b) < sealBytes {
		return b
	}
	c := append([]byte(nil), b...)
	c[len(c)-sealBytes], c[len(c)-sealBytes+1] = 0xc4, sumBytes
	binary.BigEndian.PutUint32(c[len(c)-sumBytes:], sum(c))
	return c
}
