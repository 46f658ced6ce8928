package v2_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"tensorturn/domain"
)

// Every path with every kind of caller.
func TestPathsAndCallers(t *testing.T) {
	w := newWorld(t)
	const body = `{"inputs":[{"name":"input","shape":[3],"datatype":"FP32","data":[1,2,3]}]}`
	for _, c := range []struct {
		method, path                                string
		nobody, wrong, digits, letters, owner, obsv int
	}{
		{"GET", "/v2/health/live", 200, 200, 200, 200, 200, 200},
		{"GET", "/v2/health/ready", 200, 200, 200, 200, 200, 200},
		{"GET", "/v2", 401, 401, 200, 200, 200, 200},
		{"GET", "/v2/", 401, 401, 200, 200, 200, 200},
		{"GET", "/v2/models/digits", 401, 401, 200, 403, 200, 403},
		{"GET", "/v2/models/digits/versions/2", 401, 401, 200, 403, 200, 403},
		{"GET", "/v2/models/digits/ready", 401, 401, 200, 403, 200, 403},
		{"GET", "/v2/models/digits/versions/3/ready", 401, 401, 200, 403, 200, 403},
		{"POST", "/v2/models/digits/infer", 401, 401, 200, 403, 403, 403},
		{"POST", "/v2/models/digits/versions/2/infer", 401, 401, 200, 403, 403, 403},
		// versions that are not there, in every spelling
		{"GET", "/v2/models/digits/versions/1", 401, 401, 404, 403, 404, 403},
		{"GET", "/v2/models/digits/versions/03", 401, 401, 404, 403, 404, 403},
		{"GET", "/v2/models/digits/versions/+3", 401, 401, 404, 403, 404, 403},
		{"GET", "/v2/models/digits/versions/0/ready", 401, 401, 404, 403, 404, 403},
		{"POST", "/v2/models/digits/versions/x/infer", 401, 401, 404, 403, 403, 403},
		{"POST", "/v2/models/digits/versions//infer", 401, 401, 404, 403, 403, 403},
		// a retired model, and one that never was: a key for another model cannot tell them from one that is there
		{"GET", "/v2/models/letters", 401, 401, 403, 404, 404, 403},
		{"POST", "/v2/models/letters/infer", 401, 401, 403, 404, 403, 403},
		{"GET", "/v2/models/nothing", 401, 401, 403, 403, 404, 403},
		{"POST", "/v2/models/nothing/infer", 401, 401, 403, 403, 403, 403},
		// what is no path of the protocol, and methods that do not fit
		{"GET", "/v2/models", 404, 404, 404, 404, 404, 404},
		{"GET", "/v2/models/", 404, 404, 404, 404, 404, 404},
		{"GET", "/v2/health", 404, 404, 404, 404, 404, 404},
		{"GET", "/v2/models/digits/versions", 404, 404, 404, 404, 404, 404},
		{"GET", "/v2/models/digits/config", 404, 404, 404, 404, 404, 404},
		{"GET", "/v2/models/digits/infer/x", 404, 404, 404, 404, 404, 404},
		{"GET", "/v2/models/di%67its%2f", 404, 404, 404, 404, 404, 404},
		{"GET", "/v2/repository/index", 404, 404, 404, 404, 404, 404},
		{"GET", "/v2/models/digits/infer", 405, 405, 405, 405, 405, 405},
		{"POST", "/v2/models/digits", 405, 405, 405, 405, 405, 405},
		{"POST", "/v2/health/live", 405, 405, 405, 405, 405, 405},
		{"DELETE", "/v2", 405, 405, 405, 405, 405, 405},
		{"BREW", "/v2/models/digits/ready", 405, 405, 405, 405, 405, 405},
	} {
		for _, by := range []struct {
			key  string
			want int
		}{{"", c.nobody}, {"wrong", c.wrong}, {digitsKey, c.digits}, {lettersKey, c.letters}, {ownerKey, c.owner}, {observerKey, c.obsv}} {
			a := w.send(c.method, c.path, by.key, body)
			what := fmt.Sprintf("%s %s by %q", c.method, c.path, by.key)
			if a.code != by.want {
				t.Errorf("%s: %d %s, want %d", what, a.code, a.body, by.want)
			}
			if a.code >= 400 {
				a.refused(t, a.code, "")
			}
			if a.code == 401 != (a.header.Get("Www-Authenticate") == "Bearer") {
				t.Errorf("%s: %d with challenge %q", what, a.code, a.header.Get("Www-Authenticate"))
			}
			if a.code == 405 && a.header.Get("Allow") == "" {
				t.Errorf("%s: no method is named", what)
			}
		}
	}
	if w.auth["missing"] == 0 || w.auth["unknown"] == 0 || w.auth["scope"] == 0 {
		t.Errorf("refused callers are counted as %v", w.auth)
	}
}

// Every field of every answer, letter by letter.
func TestEveryField(t *testing.T) {
	w := newWorld(t)
	for path, want := range map[string]string{
		"/v2/health/live":                    `{"live":true}`,
		"/v2/health/ready":                   `{"live":true,"ready":true}`,
		"/v2":                                `{"name":"tensorturn","version":"v1","extensions":["binary_tensor_data"]}`,
		"/v2/models/digits/ready":            `{"name":"digits","ready":true}`,
		"/v2/models/digits/versions/2/ready": `{"name":"digits","ready":true}`,
		"/v2/models/digits": `{"name":"digits","versions":["2","3"],"platform":"tensorturn_mlp","inputs":[{"name":"input","datatype":"FP32","shape":[-1,3]}],` +
			`"outputs":[{"name":"probabilities","datatype":"FP32","shape":[-1,4]},{"name":"label","datatype":"BYTES","shape":[-1]}]}`,
	} {
		if a := w.send("GET", path, digitsKey, ""); a.body != want || a.header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %s\nwant %s", path, a.body, want)
		}
	}
	for _, c := range []struct{ what, in, want string }{
		{"one row", `{"id":"42","inputs":[{"name":"input","shape":[1,3],"datatype":"FP32","data":[1,2,3]}]}`,
			`{"model_name":"digits","model_version":"3","id":"42","outputs":[{"name":"probabilities","datatype":"FP32","shape":[1,4],"data":[1e-07,0.75,1e-07,1e-07]},{"name":"label","datatype":"BYTES","shape":[1],"data":["one"]}]}`},
		{"no id, an output chosen, a label with letters", `{"inputs":[{"name":"input","shape":[2,3],"datatype":"FP32","data":[[2,0,0],[3,0,0]]}],"outputs":[{"name":"label"}]}`,
			`{"model_name":"digits","model_version":"3","outputs":[{"name":"label","datatype":"BYTES","shape":[2],"data":["t\"wo","drei ü"]}]}`},
		{"an empty id is an id; an empty choice is all", `{"id":"","outputs":[],"inputs":[{"name":"input","shape":[3],"datatype":"FP32","data":[0,0,0]}]}`,
			`{"model_name":"digits","model_version":"3","id":"","outputs":[{"name":"probabilities","datatype":"FP32","shape":[1,4],"data":[0.75,1e-07,1e-07,1e-07]},{"name":"label","datatype":"BYTES","shape":[1],"data":["0"]}]}`},
		{"order of outputs, data first, fields nobody knows", `{"x":[{}],"inputs":[{"data":[ [ 1.0 , -2e0,3] ],"y":null,"name":"input","datatype":"FP32","shape":[1,3],"parameters":{"z":1}}],"outputs":[{"name":"label"},{"name":"probabilities","parameters":{}}],"parameters":{"priority":0}}`,
			`{"model_name":"digits","model_version":"3","outputs":[{"name":"label","datatype":"BYTES","shape":[1],"data":["one"]},{"name":"probabilities","datatype":"FP32","shape":[1,4],"data":[1e-07,0.75,1e-07,1e-07]}]}`},
	} {
		a := w.infer(c.in)
		if a.code != 200 || a.body != c.want || a.header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %d\n got %s\nwant %s", c.what, a.code, a.body, c.want)
		}
		if !json.Valid([]byte(a.body)) {
			t.Errorf("%s: no JSON", c.what)
		}
	}
	if a := w.send("POST", "/v2/models/digits/versions/2/infer", digitsKey, `{"inputs":[{"name":"input","shape":[3],"datatype":"FP32","data":[1,2,3]}]}`).decode(t); a.ModelVersion != "2" {
		t.Errorf("version 2 answers as %s", a.ModelVersion)
	}
}

// An ensemble says in parameters how its members voted.
func TestEnsembleParameters(t *testing.T) {
	w := newWorld(t)
	w.backend.ensbl = true
	d := w.infer(`{"inputs":[{"name":"input","shape":[2,3],"datatype":"FP32","data":[1,0,0,3,0,0]}]}`).decode(t)
	if d.Parameters["members_used"] != 3.0 || math.Abs(d.Parameters["agreement"].(float64)-2.0/3) > 1e-9 || d.Parameters["votes"] != `one: 2, t"wo: 1; 0: 1, drei ü: 2` {
		t.Errorf("%v", d.Parameters)
	}
	many := fmt.Sprintf(`{"inputs":[{"name":"input","shape":[65,3],"datatype":"FP32","data":[%s]}]}`, strings.TrimSuffix(strings.Repeat("1,0,0,", 65), ","))
	if d := w.infer(many).decode(t); d.Parameters["votes"] != nil || d.Parameters["members_used"] != 3.0 {
		t.Errorf("of 65 rows: %v", d.Parameters)
	}
}

// binaryRequest puts bytes behind the object.
func binaryRequest(object string, behind []byte) (body string, headers []string) {
	return object + string(behind), []string{"Inference-Header-Content-Length", fmt.Sprint(len(object)), "Content-Type", "application/octet-stream"}
}

// The binary extension, in and out, and mixed.
func TestBinary(t *testing.T) {
	w := newWorld(t)
	var x []byte
	for _, v := range []float32{1, 0.5, -3, 2, 0, 0} {
		x = binary.LittleEndian.AppendUint32(x, math.Float32bits(v))
	}
	in := `"inputs":[{"name":"input","shape":[2,3],"datatype":"FP32","parameters":{"binary_data_size":24}}]`
	probs := []float32{1e-7, 0.75, 1e-7, 1e-7, 1e-7, 1e-7, 0.75, 1e-7}
	var rawProbs []byte
	for _, p := range probs {
		rawProbs = binary.LittleEndian.AppendUint32(rawProbs, math.Float32bits(p))
	}
	rawLabels := "\x03\x00\x00\x00one\x04\x00\x00\x00t\"wo"
	for _, c := range []struct{ what, object, behind string }{
		{"all as text", `{` + in + `}`, ""},
		{"all as bytes", `{` + in + `,"parameters":{"binary_data_output":true}}`, string(rawProbs) + rawLabels},
		{"all but one", `{` + in + `,"parameters":{"binary_data_output":true},"outputs":[{"name":"label"},{"name":"probabilities","parameters":{"binary_data":false}}]}`, rawLabels},
		{"one alone", `{` + in + `,"outputs":[{"name":"probabilities","parameters":{"binary_data":true}}]}`, string(rawProbs)},
		{"order as asked", `{` + in + `,"outputs":[{"name":"label","parameters":{"binary_data":true}},{"name":"probabilities","parameters":{"binary_data":true}}]}`, rawLabels + string(rawProbs)},
	} {
		body, headers := binaryRequest(c.object, x)
		a := w.infer(body, headers...)
		length := len(a.body)
		if h := a.header.Get("Inference-Header-Content-Length"); h != "" {
			fmt.Sscan(h, &length)
		}
		if binaryAnswer := c.behind != ""; binaryAnswer != (a.header.Get("Content-Type") == "application/octet-stream") || binaryAnswer == (length == len(a.body)) {
			t.Errorf("%s: %v", c.what, a.header)
		}
		if a.code != 200 || a.body[length:] != c.behind {
			t.Errorf("%s: %d, behind the object is %q, want %q", c.what, a.code, a.body[length:], c.behind)
			continue
		}
		at := length
		for _, o := range (answer{200, nil, a.body[:length]}).decode(t).Outputs {
			if size, ok := o.Parameters["binary_data_size"].(float64); ok {
				at += int(size)
				if o.Data != nil {
					t.Errorf("%s: %s has data and bytes", c.what, o.Name)
				}
			} else if len(o.Data) == 0 {
				t.Errorf("%s: %s has neither data nor bytes", c.what, o.Name)
			}
		}
		if at != len(a.body) {
			t.Errorf("%s: the sizes say %d bytes, there are %d", c.what, at, len(a.body))
		}
	}
}

// Each datatype, as text and as bytes: what FP32 holds comes through exactly, what it cannot hold is refused.
func TestDatatypes(t *testing.T) {
	w := newWorld(t)
	le := func(v any) []byte {
		b, err := binary.Append(nil, binary.LittleEndian, v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for _, c := range []struct {
		datatype, text string
		bytes          []byte
		refused        string
	}{
		{"FP32", "1,2.5,-3e-3", le([]float32{1, 2.5, -3e-3}), ""},
		{"FP64", "1,2.5,0.1", le([]float64{1, 2.5, 0.1}), ""},
		{"FP64", "1,2.5,1e39", le([]float64{1, 2.5, 1e39}), "value 2 is no FP64 that FP32 can hold"},
		{"FP32", "1,2.5,1e39", nil, "value 2 is no FP32"},
		{"INT8", "1,-128,127", le([]int8{1, -128, 127}), ""},
		{"INT8", "1,-129,127", nil, "value 1 is no INT8"},
		{"INT16", "1,-32768,32767", le([]int16{1, -32768, 32767}), ""},
		{"INT32", "1,-2147483648,16777216", le([]int32{1, -2147483648, 16777216}), ""},
		{"INT32", "1,2,16777217", le([]int32{1, 2, 16777217}), "value 2 is no INT32 that FP32 can hold"},
		{"INT64", "1,-9223372036854775808,4611686018427387904", le([]int64{1, math.MinInt64, 1 << 62}), ""},
		{"INT64", "1,9223372036854775807,2", le([]int64{1, math.MaxInt64, 2}), "value 1 is no INT64"},
		{"INT64", "1,9223372036854775808,2", nil, "value 1 is no INT64"},
		{"INT64", "1,2.0,3", nil, "value 1 is no INT64"},
		{"UINT8", "1,0,255", le([]uint8{1, 0, 255}), ""},
		{"UINT8", "1,-1,255", nil, "value 1 is no UINT8"},
		{"UINT16", "1,0,65535", le([]uint16{1, 0, 65535}), ""},
		{"UINT32", "1,0,4294967040", le([]uint32{1, 0, 4294967040}), ""},
		{"UINT32", "1,0,4294967295", le([]uint32{1, 0, 4294967295}), "value 2 is no UINT32"},
		{"UINT64", "1,0,9223372036854775808", le([]uint64{1, 0, 1 << 63}), ""},
		{"UINT64", "1,0,18446744073709551615", le([]uint64{1, 0, math.MaxUint64}), "value 2 is no UINT64"},
		{"BOOL", "true,false,true", []byte{1, 0, 1}, ""},
		{"BOOL", "true,0,true", []byte{1, 2, 1}, "value 1 is no BOOL"},
		{"FP16", "1,2,3", nil, "comes as bytes"},
		{"FP16", "", le([]uint16{0x3c00, 0x0001, 0xfbff}), ""},
		{"BF16", "", le([]uint16{0x3f80, 0x0001, 0xff7f}), ""},
		{"BYTES", `"1","2","3"`, []byte("\x01\x00\x00\x001\x01\x00\x00\x001\x01\x00\x00\x001"), "does not hold numbers"},
		{"FP8", "1,2,3", []byte{1, 2, 3}, "none of the protocol's datatypes"},
	} {
		check := func(how string, a answer) {
			if c.refused != "" {
				a.refused(t, 400, c.refused)
			} else if d := a.decode(t); d.Outputs[0].Data[0] != "one" {
				t.Errorf("%s as %s: %s", c.datatype, how, a.body)
			}
			if t.Failed() {
				t.Fatalf("%s %s as %s", c.datatype, c.text, how)
			}
		}
		choice := `"outputs":[{"name":"label"}]`
		if c.text != "" {
			check("text", w.infer(fmt.Sprintf(`{%s,"inputs":[{"name":"input","shape":[1,3],"datatype":"%s","data":[%s]}]}`, choice, c.datatype, c.text)))
		}
		if c.bytes != nil {
			body, headers := binaryRequest(fmt.Sprintf(`{%s,"inputs":[{"name":"input","shape":[1,3],"datatype":"%s","parameters":{"binary_data_size":%d}}]}`, choice, c.datatype, len(c.bytes)), c.bytes)
			check("bytes", w.infer(body, headers...))
		}
	}
}

// A key's rate is its own: what is beyond it gets 429 and is told when to come again.
func TestRate(t *testing.T) {
	w := newWorld(t)
	const body = `{"inputs":[{"name":"input","shape":[3],"datatype":"FP32","data":[1,2,3]}]}`
	ask := func() answer { return w.send("POST", "/v2/models/digits/infer", slowKey, body) }
	if a := ask(); a.code != 200 {
		t.Fatalf("the first: %d %s", a.code, a.body)
	}
	a := ask()
	a.refused(t, 429, "this key may ask 2 requests a minute")
	if a.header.Get("Retry-After") != "30" {
		t.Errorf("Retry-After %q", a.header.Get("Retry-After"))
	}
	if a := w.infer(body); a.code != 200 {
		t.Errorf("another key: %d", a.code)
	}
	w.later(31 * time.Second)
	if a := ask(); a.code != 200 {
		t.Errorf("after half a minute: %d %s", a.code, a.body)
	}
	if w.inferred["digits OK"] != 3 || w.inferred["digits Too Many Requests"] != 1 {
		t.Errorf("counted %v", w.inferred)
	}
}

// What goes wrong behind the API has a status, and never the text of what is ours.
func TestFailuresBehind(t *testing.T) {
	w := newWorld(t)
	const body = `{"inputs":[{"name":"input","shape":[3],"datatype":"FP32","data":[1,2,3]}]}`
	for _, c := range []struct {
		err   error
		code  int
		text  string
		retry string
	}{
		{domain.Invalid("predict", "row 0, feature a is not finite", ""), 400, "not finite", ""},
		{domain.Unavailable("predict", "too many rows wait", "", nil), 503, "too many rows", "1"},
		{domain.Integrity("load", "part abc is damaged at /srv/x", ""), 503, "missing or damaged", "5"},
		{domain.NotFound("load", "no blob abc", ""), 503, "missing or damaged", "5"},
		{fmt.Errorf("secret detail"), 500, "failed inside", ""},
	} {
		w.backend.mu.Lock()
		w.backend.err = c.err
		w.backend.mu.Unlock()
		a := w.infer(body)
		a.refused(t, c.code, c.text)
		if a.header.Get("Retry-After") != c.retry || strings.Contains(a.body, "secret") || strings.Contains(a.body, "/srv") {
			t.Errorf("%v: Retry-After %q, %s", c.err, a.header.Get("Retry-After"), a.body)
		}
	}
	w.backend.mu.Lock()
	w.backend.err, w.backend.panics = nil, true
	w.backend.mu.Unlock()
	w.infer(body).refused(t, 500, "failed inside")
	w.send("POST", "/v2/models/away/infer", "away", body).refused(t, 503, "nobody answers")
	w.mu.Lock()
	w.sick = fmt.Errorf("the hub is stopping")
	w.mu.Unlock()
	a := w.send("GET", "/v2/health/ready", "", "")
	a.refused(t, 503, "stopping")
	if a.header.Get("Retry-After") == "" {
		t.Error("not ready, without Retry-After")
	}
	if a := w.send("GET", "/v2/health/live", "", ""); a.code != 200 {
		t.Errorf("live: %d", a.code)
	}
}
