package config

import (
	"slices"
	"strings"
	"testing"
)

func TestJoinEndpoints(t *testing.T) {
	for name, test := range map[string]struct {
		join string
		want []string
		err  string
	}{
		"none":            {"", nil, ""},
		"two":             {JoinOf([]string{"http://a:2379", "http://[fd00::1]:2379"}), []string{"http://a:2379", "http://[fd00::1]:2379"}, ""},
		"TLS":             {"https://a:2379", nil, "no URL like http://host:2379"},
		"without a port":  {"http://a", nil, "no URL like http://host:2379"},
		"an empty one":    {"http://a:2379,", nil, "no URL like http://host:2379"},
		"no URL":          {"a:2379", nil, "no URL like http://host:2379"},
		"a URL of no one": {"http://:2379", nil, "no URL like http://host:2379"},
	} {
		t.Run(name, func(t *testing.T) {
			c := valid()
			c.Join = test.join
			got, err := c.JoinEndpoints()
			if !slices.Equal(got, test.want) || (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("got %v, %v", got, err)
			}
			if valid := c.Validate(); (valid == nil) != (test.err == "") {
				t.Errorf("the configuration: %v", valid)
			}
		})
	}
	c := valid()
	c.Join, c.Restore = "http://a:2379", `{"prefix":"a/b"}`
	if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "--join and --restore are both set") {
		t.Errorf("to join and to restore at once: %v", err)
	}
}
