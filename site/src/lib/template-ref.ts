import { useQuery } from "@tanstack/react-query";
import { queries } from "~/api/queries";

interface Named {
  id: string;
  name: string;
  organization_id: string;
}

// useTemplateRef returns how addresses refer to a template: by name in the default organization, by id in others, where
// a template can have the same name.
export function useTemplateRef(): (template: Named) => string {
  const { data } = useQuery({ ...queries.organizations(), staleTime: Infinity, refetchInterval: false });
  const standard = data?.find((o) => o.is_default)?.id;
  return (t) => (data === undefined || t.organization_id === standard ? t.name : t.id);
}
