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

// Secrets in the clothes that logs put them in.
func TestLinesOfLogs(t *testing.T) {
	for in, want := range map[string]string{
		`{"msg":"login {\"password\":\"hunter2hunter2\"}"}`:                                            `{"msg":"login {\"password\":\"[redacted]\"}"}`,
		`{\"password\":\"correct horse battery\",\"n\":1}`:                                             `{\"password\":\"[redacted]\",\"n\":1}`,
		`password: "correct horse battery", n: 1`:                                                      `password: "[redacted]", n: 1`,
		`password: "it is \"quoted\" within", n: 1`:                                                    `password: "[redacted]", n: 1`,
		`PGPASSWORD='hunter2 hunter2x' psql`:                                                           `PGPASSWORD='[redacted]' psql`,
		`password => "hunter2hunter2"`:                                                                 `password => "[redacted]"`,
		"train.py --password hunter2hunter2 --lr 0.1":                                                  "train.py --password [redacted] --lr 0.1",
		`train.py --hf-token "abc def ghi" --api-key '01 234567' --lr 0.1`:                             "train.py --hf-token [redacted] --api-key [redacted] --lr 0.1",
		"GET /x?token%3Dabcdefghij1234":                                                                "GET /x?token%3D[redacted]",
		"WANDB_API_KEY=abc,defghijkl,mnop, next":                                                       "WANDB_API_KEY=[redacted], next",
		"SECRET_KEY_BASE=abcdefgh12345678":                                                             "SECRET_KEY_BASE=[redacted]",
		"host=db pwd=hunter2hunter2;n=1":                                                               "host=db pwd=[redacted];n=1",
		"Cookie: session=abcdefghijklmnop; x=1":                                                        "Cookie: [redacted]",
		`{'Set-Cookie': 'a=0123456789; Path=/', 'n': 1}`:                                               `{'Set-Cookie': '[redacted]', 'n': 1}`,
		"clone https://s3cr3tt0k3nvalue@host/repo.git":                                                 "clone https://[redacted]@host/repo.git",
		"postgres://u:p@ssw0rd!long@host/db":                                                           "postgres://[redacted]@host/db",
		"glpat-abcdefghijklmnopqrst b'hf_abcdefghijklmnopqrstuvwx'":                                    "[redacted] b'[redacted]'",
		"nvapi-abcdefghijklmnopqrstuvwxyz012345 dckr_pat_abcdefghijklmnopqrstu":                        "[redacted] [redacted]",
		"npm_abcdefghijklmnopqrstuvwxyz0123456789":                                                     "[redacted]",
		"AIzaSyA1234567890abcdefghijklmnopqrstuvw ASIAABCDEFGHIJKLMNOP ya29.a0AfH6SMBabcdefghijklmnop": "[redacted] [redacted] [redacted]",
		"-----BEGIN PGP PRIVATE KEY BLOCK-----":                                                        "[redacted]",
	} {
		if got := string(redact.New().Line([]byte(in))); got != want {
			t.Errorf("%q gives %q", in, got)
		}
	}
}

// What programs print of training, of places and of people stays.
func TestOrdinaryOutputStays(t *testing.T) {
	for _, line := range []string{
		"tokens=123 token 12 of 50, loss: 0.3", "token=1,accuracy=0.93,loss=0.31", "{'loss': 0.3, 'tokens': 12345678, 'tokens_per_second': 1234.5678}",
		"--tokenizer bert-base-uncased --max-tokens 12345678", "--token is required", "tokens: [12345678, 2345678]",
		"https://host/x@y and http://host:80/x@y", "ssh://git@host/repo.git", "nats://a:4222,nats://b:4222 for me@host",
		"PWD=/root/work/project OLDPWD=/home/user/data", "npm_config_user_agent_of_this_machine=npm/9", "save to /data/secret/key/model.safetensors",
		"a cookie: one of twelve", "the private key is at /etc/ssl", "PRIVATE KEY is missing",
	} {
		if got := string(redact.New().Line([]byte(line))); got != line {
			t.Errorf("%q gives %q", line, got)
		}
	}
}

// A text that begins within a private key loses what stands before the key's end; one in which a key begins loses the key alone.
func TestTextThatBeginsWithinAKey(t *testing.T) {
	for in, want := range map[string]string{
		"MIIEvQ\nIBADAN\n-----END PRIVATE KEY-----\nend":                                           "[redacted]\nend",
		"MIIEvQ\nMore\n-----END PGP PRIVATE KEY BLOCK-----\nend":                                   "[redacted]\nend",
		"MIIEvQ\n KEY-----\n":                                                                      "MIIEvQ\n KEY-----\n",
		"a\n-----BEGIN PRIVATE KEY-----\nMIIEvQ\n-----END PRIVATE KEY-----\nb":                     "a\n[redacted]\n[redacted]\n[redacted]\nb",
		"a\nkey = -----BEGIN PRIVATE KEY-----\\nMIIEvQ\\n-----END PRIVATE KEY-----\\n\nb":          "a\n[redacted]\nb",
		"MIIEvQ\n-----END PRIVATE KEY-----\nb\n-----BEGIN PRIVATE KEY-----\nMIIEvQ\nIBADAN\nAAAAA": "[redacted]\nb\n[redacted]\n[redacted]\n[redacted]\n[redacted]",
	} {
		if got := redact.Text(in); got != want {
			t.Errorf("%q gives %q", in, got)
		}
	}
}
