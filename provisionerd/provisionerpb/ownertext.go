package provisionerpb

import "strings"

// maxOwnerText bounds the value of an OwnerText, in bytes.
const maxOwnerText = 64 << 10

// Value returns the text for an owner. ok is false if a fact that it needs is empty or unknown, or if nothing of a
// FirstOf has text: then only Terraform knows the value.
func (t *OwnerText) Value(facts map[OwnerFact]string) (value string, ok bool) {
	var out strings.Builder
	for _, p := range t.GetParts() {
		text, ok := p.value(facts)
		if !ok || out.Len()+len(text) > maxOwnerText {
			return "", false
		}
		out.WriteString(text)
	}
	return out.String(), true
}

func (p *OwnerPart) value(facts map[OwnerFact]string) (string, bool) {
	switch part := p.GetPart().(type) {
	case *OwnerPart_Text:
		return part.Text, true
	case *OwnerPart_Fact:
		text := facts[part.Fact]
		return text, text != ""
	case *OwnerPart_Lower:
		text, ok := part.Lower.Value(facts)
		return strings.ToLower(text), ok
	case *OwnerPart_FirstOf_:
		for _, t := range part.FirstOf.GetTexts() {
			if text, ok := t.Value(facts); !ok || text != "" {
				return text, ok
			}
		}
	}
	return "", false
}

// OwnerFacts returns what an OwnerText may name, as Terraform's provider knows it: an owner without a full name has
// their name as such.
func OwnerFacts(m *Metadata, id string) map[OwnerFact]string {
	full := m.GetOwnerFullName()
	if full == "" {
		full = m.GetOwnerName()
	}
	return map[OwnerFact]string{
		OwnerFact_OWNER_FACT_ID: id, OwnerFact_OWNER_FACT_NAME: m.GetOwnerName(), OwnerFact_OWNER_FACT_FULL_NAME: full,
		OwnerFact_OWNER_FACT_EMAIL: m.GetOwnerEmail(), OwnerFact_OWNER_FACT_WORKSPACE_NAME: m.GetWorkspaceName(),
	}
}
