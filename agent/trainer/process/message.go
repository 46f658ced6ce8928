package process

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
	"unicode/utf8"

	"tensorturn/domain"
)

// Version is the protocol's.
const Version = 1

// message is everything a trainer may say; which fields count depends on the type.
type message struct {
	Type      string `json:"type"`
	ID        int64  `json:"id"`
	Version   int    `json:"version"`
	Name      string `json:"name"`
	Weights   string `json:"weights"`
	Samples   int64  `json:"samples"`
	Evaluates bool   `json:"evaluates"`
	Predicts  bool   `json:"predicts"`
	Halves    bool   `json:"halves"`
	Outputs   bool   `json:"outputs"`

	Checkpoints bool     `json:"checkpoints"`
	Steps       int64    `json:"steps"`
	Device      int64    `json:"device"`
	Loss        *float64 `json:"loss"`
	Accuracy    float64  `json:"accuracy"`
	Kind        string   `json:"kind"`
	Text        string   `json:"text"`
}

// request is everything the agent asks.
type request struct {
	Type     string `json:"type"`
	ID       int64  `json:"id,omitempty"`
	File     string `json:"file,omitempty"`
	Input    string `json:"input,omitempty"`
	Output   string `json:"output,omitempty"`
	Ramp     int    `json:"ramp,omitempty"`
	*segment        // of train
}

// segment is what to train.
type segment struct {
	Chunk    int   `json:"chunk"`
	Epoch    int   `json:"epoch"`
	First    int   `json:"first"`
	Count    int   `json:"count"`
	Position int64 `json:"position"`
	Total    int64 `json:"total"`
}

// fields are the keys a trainer may use, exactly as written: encoding/json alone would take any case and the last of two.
const fields = " type id version name weights samples evaluates predicts halves outputs checkpoints steps device loss accuracy kind text "

// parseMessage reads one line strictly: one flat JSON object, known keys, each once, nothing behind it.
func parseMessage(line []byte) (message, error) {
	var m message
	if !utf8.Valid(line) {
		return m, fmt.Errorf("a message is not UTF-8")
	}
	if err := checkFlat(line); err != nil {
		return m, err
	}
	if err := json.Unmarshal(line, &m); err != nil {
		return m, fmt.Errorf("a message cannot be read: %s", domain.Clip(err.Error(), 120))
	}
	switch {
	case m.ID < 0 || m.Samples < 0 || m.Steps < 0 || m.Device < 0 || m.Samples > 1<<53 || m.Steps > 1<<53 || m.Device > 1<<53:
		return m, fmt.Errorf("a number of a %s message is out of range", show(m.Type))
	case m.Loss != nil && math.IsInf(*m.Loss, 0):
		return m, fmt.Errorf("the loss of a %s message is not finite", show(m.Type))
	}
	m.Name, m.Text = clean(m.Name, domain.MaxNameLength), clean(m.Text, MaxText)
	return m, nil
}

// checkFlat walks the tokens of the line.
func checkFlat(line []byte) error {
	d := json.NewDecoder(bytes.NewReader(line))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return fmt.Errorf("a message is no JSON object: %s", show(string(line)))
	}
	seen := map[string]bool{}
	for d.More() {
		t, err := d.Token()
		key, ok := t.(string)
		if err != nil || !ok {
			return fmt.Errorf("a message is no JSON object: %s", show(string(line)))
		}
		if !strings.Contains(fields, " "+key+" ") || seen[key] || key == "" || strings.Contains(key, " ") {
			return fmt.Errorf("a message has the field %s, which is unknown or doubled", show(key))
		}
		seen[key] = true
		v, err := d.Token()
		if _, nested := v.(json.Delim); err != nil || nested {
			return fmt.Errorf("the field %s of a message is nested or cut off", show(key))
		}
	}
	if _, err := d.Token(); err != nil {
		return fmt.Errorf("a message is cut off")
	}
	if _, err := d.Token(); err != io.EOF {
		return fmt.Errorf("something follows a message on its line")
	}
	return nil
}

// encode gives the line of a request.
func (r request) encode() []byte {
	b, err := json.Marshal(r)
	domain.Assert(err == nil && len(b) < MaxMessage, "a request is a short JSON object")
	return append(b, '\n')
}

// show makes a short printable form of foreign text.
func show(s string) string { return fmt.Sprintf("%q", domain.Clip(s, 60)) }

// clean makes foreign text fit for a log line or an event: valid, bounded, without control characters.
func clean(s string, limit int) string {
	s = strings.ToValidUTF8(domain.Clip(s, limit), "")
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || r == '\r' {
			return ' '
		}
		if r < 0x20 || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return -1
		}
		return r
	}, s)
}

// validFile reports whether a name may stand for a file in the work folder.
func validFile(name string) bool {
	if name == "" || len(name) > 64 || name[0] < 'a' || name[0] > 'z' {
		return false
	}
	for _, c := range []byte(name) {
		if !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-') {
			return false
		}
	}
	return true
}
