package states

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/net/html"
)

// WebPage is a page of kubectl druid ui, as a screen reader finds its way in it: by the role and the name of an element.
type WebPage struct{ root *html.Node }

// ReadWebPage reads a page.
func ReadWebPage(text string) (WebPage, error) {
	root, err := html.Parse(strings.NewReader(text))
	if err != nil {
		return WebPage{}, fmt.Errorf("read the web page: %w", err)
	}
	return WebPage{root}, nil
}

// Texts returns the texts of the elements with a role and a name. An empty name matches every name.
func (p WebPage) Texts(role, name string) (found []string) {
	for n := range p.root.Descendants() {
		if n.Type == html.ElementNode && roleOf(n) == role && (name == "" || p.nameOf(n) == name) {
			found = append(found, textOf(n))
		}
	}
	return found
}

// roleOf returns the role of an element: the one that it has by itself, or by its kind. A section has one only if it has a name.
func roleOf(n *html.Node) string {
	if role := attribute(n, "role"); role != "" {
		return role
	}
	switch n.Data {
	case "section":
		if attribute(n, "aria-labelledby")+attribute(n, "aria-label") != "" {
			return "region"
		}
	case "h1", "h2":
		return "heading"
	case "a":
		return "link"
	default: // not needed
	}
	return ""
}

// nameOf returns the name of an element: its label, the text of the element that labels it, or its own text.
func (p WebPage) nameOf(n *html.Node) string {
	if label := attribute(n, "aria-label"); label != "" {
		return label
	}
	id := attribute(n, "aria-labelledby")
	if id == "" {
		return textOf(n)
	}
	for other := range p.root.Descendants() {
		if attribute(other, "id") == id {
			return textOf(other)
		}
	}
	return ""
}

func attribute(n *html.Node, key string) string {
	i := slices.IndexFunc(n.Attr, func(a html.Attribute) bool { return a.Key == key })
	if i < 0 {
		return ""
	}
	return n.Attr[i].Val
}

// textOf returns the text of an element, with one space between its words.
func textOf(n *html.Node) string {
	var text strings.Builder
	for d := range n.Descendants() {
		if d.Type == html.TextNode {
			text.WriteString(d.Data + " ")
		}
	}
	return strings.Join(strings.Fields(text.String()), " ")
}
