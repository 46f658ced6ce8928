package doctor

import (
	"net/url"
	"strings"
)

// proxies are the variables, in capitals, whose values are addresses of proxies.
var proxies = [...]string{"HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY"}

// ProxyOf tells the proxy that an environment names for the hub by scheme and host. User and password are left out by building the
// address anew from its parts: a password has more spellings than a rule for text knows.
func ProxyOf(env []string) string {
	for _, name := range []string{"HTTPS_PROXY", "https_proxy"} { // the order in which net/http asks
		for _, kv := range env {
			value, ok := strings.CutPrefix(kv, name+"=")
			if !ok || value == "" {
				continue
			}
			if u := proxyURL(value); u != nil {
				return u.Scheme + "://" + u.Host
			}
			return "set, and no address of a proxy"
		}
	}
	return "none"
}

// proxyURL reads a proxy's address as net/http does, which takes it without a scheme too. It is nil where more than scheme, user and
// host remains: an unescaped slash in a password ends the host, and what is taken for it is a part of the password.
func proxyURL(value string) *url.URL {
	u, err := url.Parse(value)
	if err != nil || u.Host == "" {
		u, err = url.Parse("http://" + value)
	}
	if err != nil || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || strings.Trim(u.Path, "/") != "" {
		return nil
	}
	return u
}

// proxySecrets is what must not be told of a proxy's address: user and password, whole and each, or all of it where it cannot be read.
func proxySecrets(value string) []string {
	u := proxyURL(value)
	switch {
	case u == nil:
		return []string{value}
	case u.User == nil:
		return nil
	}
	password, _ := u.User.Password()
	out := []string{value, u.User.Username(), password}
	if at := strings.LastIndexByte(value, '@'); at >= 0 { // as it is spelled
		out = append(out, value[strings.LastIndexByte(value[:at], '/')+1:at])
	}
	return out
}
