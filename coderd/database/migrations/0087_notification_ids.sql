-- +goose Up

-- Events that Coder has too get its ids: programs know them. Servers of the release before go on with the former ids, which later ones
-- understand in messages; a preference that such a server stores meanwhile is not kept.
-- +goose StatementBegin
DO $$
DECLARE pair uuid[];
BEGIN
	FOREACH pair SLICE 1 IN ARRAY ARRAY[
		['5b7aa9b4-7b0e-4d7e-9d3c-3c0d8f6b1a01', 'f517da0b-cdc9-410f-ab89-a86107c420ed'],
		['5b7aa9b4-7b0e-4d7e-9d3c-3c0d8f6b1a02', '381df2a9-c0c0-4749-420f-80a9280c66f9'],
		['5b7aa9b4-7b0e-4d7e-9d3c-3c0d8f6b1a03', '2faeee0f-26cb-4e96-821c-85ccb9f71513'],
		['5b7aa9b4-7b0e-4d7e-9d3c-3c0d8f6b1a04', '0ea69165-ec14-4314-91f1-69566ac3c5a0'],
		['5b7aa9b4-7b0e-4d7e-9d3c-3c0d8f6b1a05', '51ce2fdf-c9ca-4be1-8d70-628674f9bc42'],
		['5b7aa9b4-7b0e-4d7e-9d3c-3c0d8f6b1a08', 'c34a0c09-0704-4cac-bd1c-0c0146811c2b'],
		['5b7aa9b4-7b0e-4d7e-9d3c-3c0d8f6b1a10', '4e19c0ac-94e1-4532-9515-d1801aa283b2'],
		['5b7aa9b4-7b0e-4d7e-9d3c-3c0d8f6b1a11', 'f44d9314-ad03-4bc8-95d0-5cad491da6b6'],
		['5b7aa9b4-7b0e-4d7e-9d3c-3c0d8f6b1a12', 'b02ddd82-4733-4d02-a2d7-c36f3598997d'],
		['5b7aa9b4-7b0e-4d7e-9d3c-3c0d8f6b1a13', '9f5af851-8408-4e73-a7a1-c6502ba46689'],
		['5b7aa9b4-7b0e-4d7e-9d3c-3c0d8f6b1a14', '6a2f0609-9b69-4d36-a989-9f5925b6cbff'],
		['5b7aa9b4-7b0e-4d7e-9d3c-3c0d8f6b1a15', '1a6a6bea-ee0a-43e2-9e7c-eabdb53730e4'],
		['5b7aa9b4-7b0e-4d7e-9d3c-3c0d8f6b1a17', '29a09665-2a4c-403f-9648-54301670e7be'],
		['5b7aa9b4-7b0e-4d7e-9d3c-3c0d8f6b1a18', 'f40fae84-55a2-42cd-99fa-b41c1ca64894'],
		['5b7aa9b4-7b0e-4d7e-9d3c-3c0d8f6b1a19', 'c425f63e-716a-4bf4-ae24-78348f706c3f'],
		['5b7aa9b4-7b0e-4d7e-9d3c-3c0d8f6b1a20', '39b1e189-c857-4b0c-877a-511144c18516'],
		['5b7aa9b4-7b0e-4d7e-9d3c-3c0d8f6b1a21', 'a9d027b4-ac49-4fb1-9f6d-45af15f64e7a'],
		['5b7aa9b4-7b0e-4d7e-9d3c-3c0d8f6b1a22', 'f047f6a3-5713-40f7-85aa-0394cce9fa3a']
	]::uuid[][] LOOP
		UPDATE notification_messages SET template_id = pair[2] WHERE template_id = pair[1] AND status = 'pending';
		UPDATE inbox_notifications SET template_id = pair[2] WHERE template_id = pair[1];
		UPDATE notification_methods SET template_id = pair[2] WHERE template_id = pair[1];
		UPDATE notification_preferences SET template_id = pair[2] WHERE template_id = pair[1];
	END LOOP;
END $$;
-- +goose StatementEnd

-- +goose Down
-- Nothing: an older server must not discard a newer one's data.
SELECT 1;
