package contextd

import (
	"fmt"
	"strings"
	"testing"
)

func settleWith(env map[string]string, url string, options ...Option) (*settings, error) {
	return settle(url, func(name string) string { return env[name] }, options)
}

func TestURLs(t *testing.T) {
	for url, want := range map[string]string{
		"http://localhost":             "[localhost:7070] false true",
		"http://localhost:1234/":       "[localhost:1234] false true",
		"https://contextd.example.com": "[contextd.example.com:443] true true",
		"http://a:1,b:2":               "[a:1 b:2] false false",
		"https://a,https://b:8443":     "[a:443 b:8443] true false",
		"http://[::1]:7070":            "[[::1]:7070] false true",
		"dns:///contextd:7070":         "[contextd:7070] false true",
		"https+dns:///contextd:7070":   "[contextd:7070] true true",
	} {
		found, err := settleWith(nil, url)
		if err != nil {
			t.Errorf("%s: %v", url, err)
		} else if got := fmt.Sprint(found.hosts, found.tls, found.balanced); got != want {
			t.Errorf("%s is %s, not %s", url, got, want)
		}
	}
}

func TestOtherURLsAreRefused(t *testing.T) {
	for _, url := range []string{"localhost:7070", "grpc://a", "http://", "http://a:port", "http://a/path", "http://u@a", "http://a,,b"} {
		if _, err := settleWith(nil, url); err == nil || !strings.Contains(err.Error(), url) {
			t.Errorf("%s: %v", url, err)
		}
	}
}

func TestArgumentsWinOverVariables(t *testing.T) {
	env := map[string]string{"CONTEXTD_URL": "http://env:1", "CONTEXTD_API_KEY": "env-key"}
	for url, want := range map[string]string{"": "[env:1] env-key", "http://argument:2": "[argument:2] own-key"} {
		options := []Option{}
		if url != "" {
			options = append(options, APIKey("own-key"))
		}
		found, err := settleWith(env, url, options...)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(found.hosts, " ", found.apiKey); got != want {
			t.Errorf("got %s, not %s", got, want)
		}
	}
	if found, _ := settleWith(nil, ""); found.hosts[0] != "127.0.0.1:7070" {
		t.Errorf("the default is %s", found.hosts)
	}
}

func TestACertificateTakesAKeyAndAnHTTPSURL(t *testing.T) {
	if _, err := settleWith(nil, "https://a", ClientCertificate("c.pem", "")); err == nil || !strings.Contains(err.Error(), "KEY_FILE") {
		t.Error(err)
	}
	if _, err := settleWith(nil, "http://a", CAFile("ca.pem")); err == nil || !strings.Contains(err.Error(), "https") {
		t.Error(err)
	}
}

func TestTheKeyIsNotShown(t *testing.T) {
	client, err := Connect("http://localhost", APIKey("secret"))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for _, text := range []string{fmt.Sprint(client), fmt.Sprintf("%+v", client), fmt.Sprintf("%#v", client)} {
		if strings.Contains(text, "secret") {
			t.Errorf("it is shown in %s", text)
		}
	}
}

func TestWhiteSpaceAroundAKeyIsLeftOut(t *testing.T) {
	for _, key := range []string{"secret-key\n", "secret-key\r\n", " secret-key ", "\tsecret-key"} {
		given, err := settleWith(nil, "", APIKey(key))
		if err != nil || given.apiKey != "secret-key" {
			t.Errorf("%q: %v", key, err)
		}
		if found, err := settleWith(map[string]string{"CONTEXTD_API_KEY": key}, ""); err != nil || found.apiKey != "secret-key" {
			t.Errorf("%q: %v", key, err)
		}
	}
}

func TestAKeyThatCannotBeSentIsRefusedAndNotShown(t *testing.T) {
	for _, key := range []string{"secret\nkey", "secret key", "sécret-key", "secret\x00key"} {
		_, err := settleWith(nil, "", APIKey(key))
		if err == nil || !strings.Contains(err.Error(), "position") || strings.Contains(err.Error(), "cret") {
			t.Errorf("%q: %v", key, err)
		}
	}
}

func TestTheAddressOfTheCommandLineIsReadWhereNoURLIsGiven(t *testing.T) {
	for want, env := range map[string]map[string]string{
		"[10.0.0.1:7070] false": {"CONTEXTD_ADDRESS": "10.0.0.1:7070"},
		"[a:443] true":          {"CONTEXTD_ADDRESS": "https://a"},
		"[b:7070] false":        {"CONTEXTD_ADDRESS": "c:1", "CONTEXTD_URL": "http://b"},
	} {
		found, err := settleWith(env, "")
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(found.hosts, found.tls); got != want {
			t.Errorf("got %s, not %s", got, want)
		}
	}
}
