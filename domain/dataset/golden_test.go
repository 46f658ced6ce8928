package dataset

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"
)

// The packed digits are these bytes on every platform, for ever: their digest stands in recorded runs.
func TestPackedDigitsAreGolden(t *testing.T) {
	_, raw := pack(t, digits(t), 0.2, 1)
	sum := sha256.Sum256(raw)
	if got, want := hex.EncodeToString(sum[:]), "d617a21e50265e40f8361c76da8cd66bcadd2f623a4ab01d44226215b34de381"; got != want {
		t.Errorf("the packed digits hash to %s, want %s", got, want)
	}
}
