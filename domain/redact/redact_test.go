package redact_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"tensorturn/domain/redact"
)

// A text of several lines loses its secrets, and one without any comes back as it is.
func TestText(t *testing.T) {
	for in, want := range map[string]string{
		"":                                     "",
		"exit status 1\nno module named torch": "exit status 1\nno module named torch",
		"fetch https://me:hunter2hunter2@store/x: 403\nwith ttj_0123456789abcdefghijABCDEFGHIJ012345": "fetch https://[redacted]@store/x: 403\nwith [redacted]",
		"-----BEGIN PRIVATE KEY-----\nMIIEvQ\n-----END PRIVATE KEY-----\nend":                         "[redacted]\n[redacted]\n[redacted]\nend",
	} {
		if got := redact.Text(in); got != want {
			t.Errorf("%q gives %q", in, got)
		}
	}
}

// Each form is taken out, and what stands around it stays.
func TestLines(t *testing.T) {
	for in, want := range map[string]string{
		"loss=0.5 tokens=123456789 step 3":                                 "loss=0.5 tokens=123456789 step 3",
		"attempt 3 of the attention":                                       "attempt 3 of the attention",
		"join with ttj_0123456789abcdefghijABCDEFGHIJ012345":               "join with [redacted]",
		"Authorization: Bearer abcdefghijklmnop":                           "Authorization: Bearer [redacted]",
		`{"api_key": "0123456789abcdef"}`:                                  `{"api_key": "[redacted]"}`,
		"x eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abcdefghijklmnop y":    "x [redacted] y",
		"SUAMLK2ZNL35WSMW37E7UD4VZ7ELPKW7DHC3BWBSD2GCZ7IUQQXZIORRBU is it": "[redacted] is it",
		"AWS AKIAIOSFODNN7EXAMPLE":                                         "AWS [redacted]",
		"-----BEGIN OPENSSH PRIVATE KEY-----":                              "[redacted]",
		"ftp://u:pass@host/f and http://host:80/x":                         "ftp://[redacted]@host/f and http://host:80/x",
		"api_key = 0123456789":                                             "api_key = [redacted]",
		"api-key: 0123456789":                                              "api-key: [redacted]",
		"access-key=0123456789":                                            "access-key=[redacted]",
		"{'api_key': '0123456789'}":                                        "{'api_key': '[redacted]'}",
		"AWS_ACCESS_KEY = 0123456789":                                      "AWS_ACCESS_KEY = [redacted]",
		"aws_secret_access_key: 0123456789":                                "aws_secret_access_key: [redacted]",
		"Secret_Key=0123456789, PassWord = 0123456789":                     "Secret_Key=[redacted], PassWord = [redacted]",
		"Authorization: BASIC dXNlcjpwYXNzd29yZA==":                        "Authorization: BASIC [redacted]",
		"redis://:hunter2hunter@db:6379":                                   "redis://[redacted]@db:6379",
		"github_pat_0123456789abcdefghijABCD":                              "[redacted]",
		"the keyboard: 0123456789, a basic monkey: 0123":                   "the keyboard: 0123456789, a basic monkey: 0123",
	} {
		if got := string(redact.New().Line([]byte(in))); got != want {
			t.Errorf("%q gives %q", in, got)
		}
	}
	r := redact.New()
	var out []string
	for _, line := range []string{"a", "-----BEGIN PRIVATE KEY-----", "MIIEvQ", "-----END PRIVATE KEY-----", "b"} {
		out = append(out, string(r.Line([]byte(line))))
	}
	if d := cmp.Diff([]string{"a", "[redacted]", "[redacted]", "[redacted]", "b"}, out); d != "" {
		t.Error(d)
	}
}
