"""leq.AsyncModel: what Model gives, several at once, and cancelled tasks."""

import asyncio
import unittest

import leq
from story import PATH, PROMPT, setUpModule, tearDownModule  # noqa: F401

PROMPTS = [PROMPT, "The dog", "Lily and Tom", "One day"]


class Async(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.model = leq.AsyncModel(PATH, context=4096, sequences=4, threads=2)

    async def asyncTearDown(self):
        await self.model.close()

    async def test_tasks_generate_at_once_what_they_generate_alone(self):
        alone = [self.model.model.generate(one, max_tokens=20, seed=3).text for one in PROMPTS]
        replies = await asyncio.gather(
            *(self.model.generate(one, max_tokens=20, seed=3) for one in PROMPTS))
        self.assertEqual([reply.text for reply in replies], alone)

    async def test_streams_join_to_the_replies(self):
        async def joined(prompt):
            async with self.model.stream(prompt, max_tokens=20, seed=3) as stream:
                text = "".join([piece.text async for piece in stream])
            self.assertEqual(stream.reply.text, text)
            return text
        texts = await asyncio.gather(*map(joined, PROMPTS))
        self.assertEqual(texts, [self.model.model.generate(one, max_tokens=20, seed=3).text
                                 for one in PROMPTS])

    async def test_chats_are_those_of_the_model(self):
        request = {"messages": [{"role": "user", "content": "Tell a story"}], "max_tokens": 12, "seed": 5}
        expected = self.model.model.create_chat_completion(**request)["choices"]
        whole = await self.model.create_chat_completion(**request)
        self.assertEqual(whole["choices"], expected)
        chunks = [chunk async for chunk in await self.model.create_chat_completion(**request, stream=True)]
        self.assertEqual("".join(chunk["choices"][0]["delta"].get("content", "")
                                 for chunk in chunks if chunk["choices"]),
                         expected[0]["message"]["content"])
        done = await self.model.create_completion(PROMPT, max_tokens=4, temperature=0)
        self.assertEqual(done["object"], "text_completion")

    async def test_a_cancelled_task_ends_its_reply(self):
        for work in (self.model.generate(PROMPT, ignore_eos=True),
                     self.model.create_completion(PROMPT, ignore_eos=True)):
            task = asyncio.create_task(work)
            await asyncio.sleep(0.1)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
        # Nothing is left in work: the model feeds alone.
        self.assertEqual(self.model.model.feed([1]).shape, (self.model.model.info["vocab"],))

    async def test_a_cancelled_reader_ends_its_stream(self):
        stream = self.model.stream(PROMPT, ignore_eos=True)

        async def read():
            async for _ in stream:
                pass
        task = asyncio.create_task(read())
        await asyncio.sleep(0.1)
        task.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await task
        await stream.aclose()
        await stream.aclose()
        self.assertEqual([piece async for piece in stream], [])
        self.assertEqual(self.model.model.feed([1]).shape, (self.model.model.info["vocab"],))

    async def test_errors_are_those_of_the_model(self):
        with self.assertRaises(leq.SettingError):
            await self.model.generate(PROMPT, temperature=-1)
        with self.assertRaises(leq.ContextFullError):
            async for _ in self.model.stream("dog " * 5000):
                pass


if __name__ == "__main__":
    unittest.main()
